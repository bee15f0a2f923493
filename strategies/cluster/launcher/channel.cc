#include "strategies/cluster/launcher/channel.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <string_view>
#include <utility>

#include "strategies/cluster/net/socket.h"

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

Channel::Channel(net::Stream link, std::chrono::milliseconds patience,
                 std::function<void(const net::Stream&)> check)
    : link_(std::move(link)), check_(std::move(check)), ready_(!link_.encrypted()) {
  net::send_at_once(link_.fd());
  net::break_when_unanswered(link_.fd(), patience);
}

short Channel::events() const {
  return static_cast<short>(link_.events() | (ready_ && !outgoing_.empty() ? POLLOUT : 0));
}

void Channel::send(const Message& message) {
  if (!link_) return;
  const std::string text = encode(message);
  if (text.size() > kMaxMessage || outgoing_.size() > kMaxUnsent) {
    break_off(text.size() > kMaxMessage ? "a message to it is too long" : "it reads nothing");
    return;
  }
  outgoing_ += write_length(text.size()) + text;
  if (!ready_) shake_hands();
  if (link_ && ready_) write_some();
}

void Channel::move() {
  if (link_ && !ready_) shake_hands();
  if (link_ && ready_) write_some();
  if (link_ && ready_) read_some();
}

void Channel::shake_hands() {
  try {
    if (!link_.shake_hands()) return;
  } catch (const Error& error) {
    break_off("it " + error.message(), error.code());
    return;
  }
  try {
    if (check_) check_(link_);
    ready_ = true;
  } catch (const Error& error) {
    break_off(error.message(), error.code());
  }
}

void Channel::write_some() {
  link_.flush();
  while (!outgoing_.empty()) {
    const iovec all{outgoing_.data(), outgoing_.size()};
    const ssize_t size = link_.write({&all, 1});
    if (size > 0) {
      outgoing_.erase(0, static_cast<size_t>(size));
    } else if (errno == EAGAIN || errno == ENOTCONN) {
      return;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      outgoing_.clear();  // what the other end has sent before is still to be read
    } else if (errno != EINTR) {
      break_off("it " + link_.failure(errno));
      return;
    }
  }
}

void Channel::read_some() {
  incoming_.erase(0, std::exchange(taken_, 0));  // at once: messages may be many, and short
  // One message and the beginning of another at most, which receive() takes away.
  while (incoming_.size() <= kHeader + kMaxMessage) {
    std::array<char, kChunk> bytes;
    const iovec room{bytes.data(), bytes.size()};
    const ssize_t size = link_.read({&room, 1});
    if (size > 0) {
      incoming_.append(bytes.data(), static_cast<size_t>(size));
    } else if (size == 0) {
      break_off("it closed the connection");
      return;
    } else if (errno == EAGAIN || errno == ENOTCONN) {
      return;
    } else if (errno != EINTR) {
      const Code refusal = link_.encrypted() ? Code::kPermissionDenied : Code::kFailedPrecondition;
      break_off("it " + link_.failure(errno), errno == EPROTO ? refusal : Code::kUnavailable);
      return;
    }
  }
}

std::optional<Message> Channel::receive() {
  const std::string_view bytes = std::string_view(incoming_).substr(taken_);
  if (bytes.size() < kHeader) return std::nullopt;
  const size_t length = read_length(bytes);
  try {
    if (length > kMaxMessage) fail(Code::kDataLoss, "a message of ", length, " bytes");
    if (bytes.size() < kHeader + length) return std::nullopt;
    Message message = decode(bytes.substr(kHeader, length));
    taken_ += kHeader + length;
    return message;
  } catch (const Error& error) {
    incoming_.clear();
    taken_ = 0;
    break_off(str("it sent what is no message: ", error.message()));
    return std::nullopt;
  }
}

void Channel::break_off(std::string why, Code code) {
  if (end_.empty()) {
    end_ = std::move(why);
    end_code_ = code;
  }
  link_.reset();
  outgoing_.clear();
}

}  // namespace cohort::launcher
