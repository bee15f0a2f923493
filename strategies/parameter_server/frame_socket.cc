#include "strategies/parameter_server/frame_socket.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <type_traits>
#include <utility>

#include "strategies/cluster/net/socket.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) == 40);

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxErrorBytes = 8192;
// Awake for so long before going to sleep, from which it takes as long to come back as a small
// request takes altogether. Others are let go first.
constexpr std::chrono::microseconds kAwake(50);
constexpr milliseconds kLastWords(200);
constexpr milliseconds kLongestSleep(1'000'000), kForever(-1);

}  // namespace

FrameSocket::FrameSocket(net::Stream stream) : stream_(std::move(stream)) {}

void FrameSocket::open(char first, Time deadline) {
  while (::send(stream_.fd(), &first, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    if (!net::would_block(errno))
      fail(Code::kUnavailable, "it cannot be reached: ", net::error_text(errno));
    poll_for(POLLOUT, deadline, nullptr);
  }
}

void FrameSocket::shake_hands(Time deadline) {
  while (!stream_.shake_hands()) poll_for(stream_.events(), deadline, nullptr);
}

void FrameSocket::put(Frame frame, std::string_view text) {
  frame.text_bytes = static_cast<uint32_t>(text.size());
  out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  out_.append(text);
}

void FrameSocket::gone() const {
  if (cancelled_) fail(Code::kCancelled, "the call was cancelled");
  fail(Code::kUnavailable, "the other side has ended the connection");
}

void FrameSocket::send(const Message& message, Time deadline) {
  put({.kind = Frame::Kind::kMessage, .bytes = message.payload_bytes()}, message.header);
  send_pieces(message.payload, deadline);
}

void FrameSocket::refuse(const Error& error) {
  constexpr size_t kMost = kMaxErrorBytes / 2;
  put({.kind = Frame::Kind::kError, .number = static_cast<uint64_t>(error.code())},
      error.message().substr(0, kMost - 1) + "\n" + error.peer().substr(0, kMost));
  flush(Clock::now() + kLastWords);
}

void FrameSocket::send_pieces(std::span<const Piece> payload, Time deadline) {
  std::vector<iovec> pieces;
  if (!out_.empty()) pieces.push_back({out_.data(), out_.size()});
  for (const Piece& piece : payload) pieces.push_back({const_cast<char*>(piece.data), piece.bytes});
  for (std::span<iovec> left = pieces; !left.empty();) {
    size_t sent = write(left.first(std::min<size_t>(left.size(), IOV_MAX)));
    if (sent == 0) poll_for(POLLOUT, deadline, nullptr);
    for (; !left.empty() && sent >= left[0].iov_len; left = left.subspan(1))
      sent -= left[0].iov_len;
    if (sent > 0) left[0] = {static_cast<char*>(left[0].iov_base) + sent, left[0].iov_len - sent};
  }
  while (stream_.has_unsent())
    if (write({}) == 0) poll_for(POLLOUT, deadline, nullptr);
  out_.clear();
}

size_t FrameSocket::write(std::span<const iovec> pieces) {
  const ssize_t sent = try_write(pieces);
  if (sent < 0) fail_to_send();
  return static_cast<size_t>(sent);
}

ssize_t FrameSocket::try_write(std::span<const iovec> pieces) {
  for (;;) {
    const ssize_t sent = pieces.empty() ? stream_.flush() : stream_.write(pieces);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    if (sent > 0) ++moved_;
    return sent;
  }
}

void FrameSocket::fail_to_send() {
  out_.clear();
  do throw_refusal();
  while (fill());
  gone();
}

void FrameSocket::throw_refusal() {
  for (Incoming said; parse(said);)
    if (said.frame.kind == Frame::Kind::kError) throw error_in(said);
}

bool FrameSocket::parse(Incoming& incoming) {
  const size_t there = in_.size() - used_;
  if (there < sizeof(Frame)) return false;
  std::memcpy(&incoming.frame, in_.data() + used_, sizeof(Frame));
  const size_t text = incoming.frame.text_bytes;
  const bool may_be_long = incoming.frame.kind == Frame::Kind::kMessage && !awaits_greeting_;
  const size_t most = may_be_long ? kMaxHeaderBytes : kMaxErrorBytes;
  if (text > most)
    fail(Code::kResourceExhausted, "a header of ", text, " bytes; the limit is ", most);
  if (there < sizeof(Frame) + text) return false;
  incoming.text.assign(in_, used_ + sizeof(Frame), text);
  used_ += sizeof(Frame) + text;
  if (used_ == in_.size()) {
    in_.clear();
    used_ = 0;
  }
  return true;
}

bool FrameSocket::fill() {
  if (used_ > kReadBytes) {
    in_.erase(0, used_);
    used_ = 0;
  }
  const size_t before = in_.size();
  in_.resize(before + kReadBytes);
  const iovec room{in_.data() + before, kReadBytes};
  size_t got = 0;
  try {
    got = read({&room, 1});
  } catch (...) {
    in_.resize(before);
    throw;
  }
  in_.resize(before + got);
  return got > 0;
}

size_t FrameSocket::read(std::span<const iovec> pieces) {
  ssize_t got = 0;
  do {
    got = stream_.read(pieces);
  } while (got < 0 && errno == EINTR);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) gone();
  if (got > 0) ++moved_;
  return static_cast<size_t>(std::max<ssize_t>(got, 0));
}

bool FrameSocket::get(Incoming& incoming, Time deadline, const net::WakeUp* wake) {
  for (;;) {
    if (parse(incoming)) {
      if (incoming.frame.kind != Frame::Kind::kBeat) return true;
      require_time(deadline);  // of whom says nothing else, too
    } else if (!fill() && !(wake == nullptr && fill_awake()) && poll_for(POLLIN, deadline, wake)) {
      return false;
    }
  }
}

FrameSocket::Incoming FrameSocket::get_greeting(Time deadline) {
  Incoming greeting;
  awaits_greeting_ = true;
  get(greeting, deadline);
  awaits_greeting_ = false;
  return greeting;
}

std::span<const char> FrameSocket::receive(std::span<char> room, size_t most, Time deadline) {
  if (used_ == in_.size()) {
    in_.clear();
    used_ = 0;
    if (!room.empty()) {
      const iovec piece{room.data(), std::min(room.size(), most)};
      size_t got = 0;
      while ((got = read({&piece, 1})) == 0) poll_for(POLLIN, deadline, nullptr);
      return room.first(got);
    }
    while (!fill()) poll_for(POLLIN, deadline, nullptr);
  }
  const std::span<const char> there(in_.data() + used_, std::min(in_.size() - used_, most));
  used_ += there.size();
  return there;
}

bool FrameSocket::fill_awake() {
  for (const auto begin = Clock::now(); Clock::now() - begin < kAwake;) {
    if (fill()) return true;
    sched_yield();
  }
  return false;
}

void FrameSocket::wait(const net::WakeUp& wake) {
  while (poll_once(POLLRDHUP, kForever, &wake) != Polled::kWoken) {
  }
}

bool FrameSocket::beat() {
  if (out_.empty()) put({.kind = Frame::Kind::kBeat});
  const iovec beat{out_.data(), out_.size()};
  const ssize_t sent = try_write({&beat, 1});
  if (sent > 0) out_.erase(0, static_cast<size_t>(sent));
  return sent >= 0;
}

milliseconds FrameSocket::require_time(Time deadline) {
  if (deadline == Time::max()) return kForever;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) fail(Code::kDeadlineExceeded, "the time for the call is over");
  return left;
}

bool FrameSocket::poll_for(short events, Time deadline, const net::WakeUp* wake) {
  milliseconds limit = pulse_ ? kBeat : kForever;
  if (const auto left = require_time(deadline); left != kForever)
    limit = std::min(left, pulse_ ? kBeat : kLongestSleep);
  const Polled polled = poll_once(events, limit, wake);
  if (polled == Polled::kNothing && pulse_ != nullptr) look_for_pulse();
  return polled == Polled::kWoken;
}

FrameSocket::Polled FrameSocket::poll_once(short events, milliseconds limit,
                                           const net::WakeUp* wake) {
  // Beats must not fill the connection.
  const bool hears = events == POLLOUT && hears_refusals_;
  if (hears) events |= POLLIN;
  pollfd waiting[2] = {{.fd = stream_.fd(), .events = events}, {.fd = -1, .events = POLLIN}};
  if (wake != nullptr) waiting[1].fd = wake->fd();
  const int ready = poll(waiting, 2, static_cast<int>(limit.count()));
  if (ready < 0) return Polled::kSomething;  // a signal
  if (cancelled_) gone();
  if (events == POLLRDHUP && waiting[0].revents != 0) gone();
  if (hears && (waiting[0].revents & POLLIN) != 0) {
    fill();
    throw_refusal();
  }
  if (waiting[1].revents == 0) return ready == 0 ? Polled::kNothing : Polled::kSomething;
  wake->clear();
  return Polled::kWoken;
}

// Beats are counted as this process has seen them pass: one that was stopped itself has seen none.
void FrameSocket::look_for_pulse() {
  const uint64_t now = __atomic_load_n(pulse_, __ATOMIC_RELAXED);
  if (std::exchange(last_pulse_, now) != now) beats_missed_ = 0;
  if (++beats_missed_ > patience_ / kBeat)
    fail(Code::kUnavailable, "it has not moved for ", patience_.count(), " ms");
}

void FrameSocket::cancel() {
  cancelled_ = true;
  shutdown(stream_.fd(), SHUT_RDWR);
}

Error error_in(const FrameSocket::Incoming& incoming) {
  const Code code = code_of(static_cast<int64_t>(incoming.frame.number));
  const size_t line = incoming.text.rfind('\n');
  return Error(code, incoming.text.substr(0, line),
               line == std::string::npos ? "" : incoming.text.substr(line + 1));
}

}  // namespace cohort::parameter_server
