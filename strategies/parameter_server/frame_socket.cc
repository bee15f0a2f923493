#include "strategies/parameter_server/frame_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <type_traits>
#include <utility>

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
constexpr milliseconds kLongestSleep(1'000'000);

}  // namespace

FrameSocket::FrameSocket(net::Descriptor socket) : socket_(std::move(socket)) {}

void FrameSocket::put(Frame frame, std::string_view text) {
  frame.text_bytes = static_cast<uint32_t>(text.size());
  out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  out_.append(text);
}

void FrameSocket::gone() const {
  if (cancelled_) fail(Code::kCancelled, "the call was cancelled");
  fail(Code::kUnavailable, "the other side has ended the connection");
}

void FrameSocket::flush(Time deadline) {
  size_t sent = 0;
  while (sent < out_.size()) {
    const ssize_t n =
        send(fd(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) break;
    poll_for(POLLOUT, deadline, nullptr);
  }
  const bool all = sent == out_.size();
  out_.clear();
  if (all) return;
  // What it said last is why.
  Incoming last;
  for (;;) {
    while (parse(last))
      if (last.frame.kind == Frame::Kind::kError) throw error_in(last);
    if (!fill()) gone();
  }
}

bool FrameSocket::parse(Incoming& incoming) {
  const size_t there = in_.size() - used_;
  if (there < sizeof(Frame)) return false;
  std::memcpy(&incoming.frame, in_.data() + used_, sizeof(Frame));
  const size_t text = incoming.frame.text_bytes;
  const size_t most =
      incoming.frame.kind == Frame::Kind::kMessage ? kMaxHeaderBytes : kMaxErrorBytes;
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
  ssize_t n = 0;
  do {
    n = recv(fd(), in_.data() + before, kReadBytes, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  in_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) gone();
  return n > 0;
}

bool FrameSocket::get(Incoming& incoming, Time deadline, const net::WakeUp* wake) {
  while (!parse(incoming)) {
    if (fill()) continue;
    if (wake == nullptr && fill_awake()) continue;
    if (poll_for(POLLIN, deadline, wake)) return false;
  }
  return true;
}

bool FrameSocket::fill_awake() {
  for (const auto begin = Clock::now(); Clock::now() - begin < kAwake;) {
    if (fill()) return true;
    sched_yield();
  }
  return false;
}

void FrameSocket::wait(const net::WakeUp& wake) {
  while (!poll_for(POLLRDHUP, Time::max(), &wake)) {
  }
}

bool FrameSocket::poll_for(short events, Time deadline, const net::WakeUp* wake) {
  pollfd waiting[2] = {{.fd = fd(), .events = events}, {.fd = -1, .events = POLLIN}};
  if (wake != nullptr) waiting[1].fd = wake->fd();
  int limit = -1;
  if (deadline != Time::max()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) fail(Code::kDeadlineExceeded, "the time for the call is over");
    limit = static_cast<int>(std::min(left, pulse_ ? kBeat : kLongestSleep).count());
  }
  const int ready = poll(waiting, 2, limit);
  if (ready < 0) return false;  // a signal
  if (ready == 0 && pulse_ != nullptr) look_for_pulse();
  if (cancelled_) gone();
  if (events == POLLRDHUP && waiting[0].revents != 0) gone();
  if (waiting[1].revents == 0) return false;
  wake->clear();
  return true;
}

// Beats are counted as this process has seen them pass: one that was stopped itself has seen none.
void FrameSocket::look_for_pulse() {
  const uint64_t now = __atomic_load_n(pulse_, __ATOMIC_RELAXED);
  if (std::exchange(last_pulse_, now) != now) beats_missed_ = 0;
  if (++beats_missed_ > kDead / kBeat)
    fail(Code::kUnavailable, "it has not moved for ", kDead.count(), " ms");
}

void FrameSocket::cancel() {
  cancelled_ = true;
  shutdown(fd(), SHUT_RDWR);
}

Frame error_frame(const Error& error, std::string& text) {
  constexpr size_t kMost = kMaxErrorBytes / 2;
  text = error.message().substr(0, kMost - 1) + "\n" + error.peer().substr(0, kMost);
  return {.kind = Frame::Kind::kError, .number = static_cast<uint64_t>(error.code())};
}

Error error_in(const FrameSocket::Incoming& incoming) {
  const uint64_t number = incoming.frame.number;
  const bool known = number >= static_cast<uint64_t>(Code::kCancelled) &&
                     number <= static_cast<uint64_t>(Code::kDataLoss);
  const size_t line = incoming.text.rfind('\n');
  return Error(known ? static_cast<Code>(number) : Code::kUnknown, incoming.text.substr(0, line),
               line == std::string::npos ? "" : incoming.text.substr(line + 1));
}

}  // namespace cohort::parameter_server
