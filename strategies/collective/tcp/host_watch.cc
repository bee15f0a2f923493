#include "strategies/collective/tcp/host_watch.h"

#include <algorithm>

#include "strategies/cluster/net/socket.h"

namespace cohort::tcp {
namespace {

using std::chrono::milliseconds;

// Between two looks, and while somebody does not answer: an outage that is over is seen at once.
constexpr milliseconds kCalm{200}, kUrgent{100};
// Without an answer, fewer than let_ask() allows.
constexpr int kQuestions = 60;
// Who was heard of since then is not asked.
constexpr milliseconds kRecently{400};
// How much later than due a look may be for all of the time before it to count as time without an
// answer: in the rest, this process has not looked, nor asked.
constexpr milliseconds kLate{150};
constexpr milliseconds kForever = std::chrono::hours(1'000'000);

}  // namespace

void HostWatch::add(int peer, int fd) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<size_t>(peer)].fds.push_back(fd);
}

Clock::time_point HostWatch::next_look() const {
  const std::lock_guard lock(mutex_);
  return next_look_;
}

std::optional<HostWatch::Silent> HostWatch::look(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now < next_look_) return {};
  const auto urgent = std::max(kUrgent, silence_ / kQuestions);
  const auto step =
      std::min(std::chrono::duration_cast<milliseconds>(now - last_look_), urgent + kLate);
  last_look_ = now;
  std::optional<Silent> silent;
  bool is_urgent = false;
  for (Peer& peer : peers_) {
    if (peer.fds.empty() || peer.is_given_up) continue;
    look_at(peer, now, step);
    is_urgent = is_urgent || peer.is_asked;
    if (!peer.is_asked || peer.waited < silence_ || silent) continue;
    peer.is_given_up = true;
    silent = {static_cast<int>(&peer - peers_.data()),
              std::chrono::duration_cast<milliseconds>(now - peer.asked)};
  }
  next_look_ = now + (is_urgent ? urgent : kCalm);
  return silent;
}

void HostWatch::look_at(Peer& peer, Clock::time_point now, milliseconds step) {
  milliseconds heard = kForever, longest{0};
  bool is_awaited = false;
  int idle = -1;  // the connection that could be asked on the longest
  for (const int fd : peer.fds) {
    const auto on = net::heard_on(fd);
    if (!on) continue;
    heard = std::min(heard, on->ago);
    is_awaited = is_awaited || on->awaited;
    if (on->awaited || on->ago < longest) continue;
    idle = fd;
    longest = on->ago;
  }
  // Who reads finds that all connections are closed.
  if (heard == kForever || now - heard > peer.asked) peer.is_asked = false;
  const bool asks = idle >= 0 && heard >= kRecently && longest >= net::kNoQuestion;
  if (asks) net::ask_host(idle);
  if (peer.is_asked) {
    peer.waited += step;
  } else if (asks || is_awaited) {
    peer.is_asked = true;
    peer.asked = now;
    peer.waited = milliseconds(0);
  }
}

}  // namespace cohort::tcp
