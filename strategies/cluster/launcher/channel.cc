#include "strategies/cluster/launcher/channel.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr size_t kHeader = 4;                   // bytes
constexpr size_t kMaxUnsent = 4 * kMaxMessage;  // bytes
constexpr size_t kChunk = 1 << 16;              // bytes

size_t read_length(std::string_view bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kHeader; ++i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

std::string write_length(size_t length) {
  std::string out;
  for (size_t i = kHeader; i-- > 0;) out += static_cast<char>(length >> 8 * i & 0xff);
  return out;
}

}  // namespace

Channel::Channel(net::Descriptor socket, std::chrono::milliseconds patience)
    : socket_(std::move(socket)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto limit = static_cast<unsigned>(patience.count());
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
}

short Channel::events() const {
  return static_cast<short>(POLLIN | (outgoing_.empty() ? 0 : POLLOUT));
}

void Channel::send(const Message& message) {
  if (!socket_) return;
  const std::string text = encode(message);
  if (text.size() > kMaxMessage || outgoing_.size() > kMaxUnsent) {
    break_off(text.size() > kMaxMessage ? "a message to it is too long" : "it reads nothing");
    return;
  }
  outgoing_ += write_length(text.size()) + text;
  write_some();
}

void Channel::move() {
  if (socket_) write_some();
  if (socket_) read_some();
}

void Channel::write_some() {
  while (!outgoing_.empty()) {
    const ssize_t size = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (size > 0) {
      outgoing_.erase(0, static_cast<size_t>(size));
    } else if (errno == EAGAIN || errno == ENOTCONN) {
      return;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      outgoing_.clear();  // what the other end has sent before is still to be read
    } else if (errno != EINTR) {
      break_off(std::strerror(errno));
      return;
    }
  }
}

void Channel::read_some() {
  // One message and the beginning of another at most, which receive() takes away.
  while (incoming_.size() <= kHeader + kMaxMessage) {
    std::array<char, kChunk> bytes;
    const ssize_t size = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size > 0) {
      incoming_.append(bytes.data(), static_cast<size_t>(size));
    } else if (size == 0) {
      break_off("it closed the connection");
      return;
    } else if (errno == EAGAIN || errno == ENOTCONN) {
      return;
    } else if (errno != EINTR) {
      break_off(std::strerror(errno));
      return;
    }
  }
}

std::optional<Message> Channel::receive() {
  if (incoming_.size() < kHeader) return std::nullopt;
  const size_t length = read_length(incoming_);
  try {
    if (length > kMaxMessage) fail(Code::kDataLoss, "a message of ", length, " bytes");
    if (incoming_.size() < kHeader + length) return std::nullopt;
    Message message = decode(std::string_view(incoming_).substr(kHeader, length));
    incoming_.erase(0, kHeader + length);
    return message;
  } catch (const Error& error) {
    incoming_.clear();
    break_off(str("it sent what is no message: ", error.message()));
    return std::nullopt;
  }
}

void Channel::break_off(std::string why) {
  if (end_.empty()) end_ = std::move(why);
  socket_.reset();
  outgoing_.clear();
}

}  // namespace cohort::launcher
