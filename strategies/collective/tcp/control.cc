#include "strategies/collective/tcp/control.h"

#include <algorithm>
#include <cerrno>

namespace cohort::tcp {
namespace {

// How long a peer that has closed a connection has to say why on another one.
constexpr std::chrono::milliseconds kLastWords{200};
// How long one of a group that was aborted waits for anything to move; and one that goes away,
// while all others may be well.
constexpr std::chrono::milliseconds kAbortedPatience{200}, kLeavingPatience{3000};

// What is read of a peer before others have their turn: more than what one in its senses says while
// nobody listens, a part of which TLS would keep where poll() does not see it.
constexpr int kBuffersAtOnce = 16;

}  // namespace

Control::Control(int rank, std::vector<Peer> peers, std::chrono::milliseconds silence,
                 std::function<void(const Error&)> on_unreachable)
    : rank_(rank),
      on_unreachable_(std::move(on_unreachable)),
      hosts_(peers.size(), silence),
      peers_(std::move(peers)) {
  states_.resize(peers_.size());
  for (size_t p = 0; p < peers_.size(); ++p) states_[p].open = static_cast<bool>(peers_[p].link);
}

std::string Control::name(int peer) const {
  const Peer& named = peers_[static_cast<size_t>(peer)];
  if (named.task.empty()) return str("rank ", named.number, " at ", named.address);
  return str(named.task, " (rank ", named.number, ") at ", named.address);
}

Error Control::failure_of(int peer, const std::string& what, Code code) const {
  return Error(code, str(name(peer), ' ', what), task(peer));
}

void Control::refuse_frame(int peer) const {
  throw failure_of(peer, "has sent a frame that nobody expects", Code::kDataLoss);
}

void Control::end(const Error& error, uint64_t finish) {
  const Lock lock(mutex_);
  end_locked(error, finish, true);
}

void Control::end_locked(const Error& error, uint64_t finish, bool tell) {
  if (error_ && finish >= finish_) return;
  if (!error_) error_ = error;
  finish_ = finish;
  ended_ = true;
  if (tell) tell_end_locked(finish);
  signal();
}

void Control::abort(const Error& error) {
  const Lock lock(mutex_);
  is_aborted_ = true;
  uint64_t finish = joined_;
  if (!error_) {
    read_all_locked();
    if (error_ && error_->code() == Code::kUnavailable) {
      finish = std::min(finish, finish_);
      error_.reset();
    }
  }
  end_locked(error, finish, true);
}

void Control::leave() {
  const Lock lock(mutex_);
  has_left_ = true;
  const uint64_t joined = joined_;
  if (!error_) {
    error_ = failure_of(rank_, "has left its group");
    finish_ = joined;
  }
  ended_ = true;
  tell_end_locked(joined);
  signal();
}

std::optional<std::chrono::milliseconds> Control::patience() const {
  if (is_aborted_) return kAbortedPatience;
  if (has_left_) return kLeavingPatience;
  return std::nullopt;
}

void Control::tell_end_locked(uint64_t finish) {
  send_locked(encode({.kind = Notice::Kind::kEnd,
                      .sequence = finish,
                      .code = error_->code(),
                      .text = error_->message(),
                      .peer = error_->peer()}));
}

void Control::check(uint64_t sequence) const {
  if (!ended_) return;
  const Lock lock(mutex_);
  if (sequence > finish_) throw *error_;
}

void Control::add_polled(const net::WakeUp& wake_up, std::vector<pollfd>& polled) const {
  polled.push_back({wake_up.fd(), POLLIN, 0});
  const Lock lock(mutex_);
  for (size_t p = 0; p < peers_.size(); ++p)
    if (states_[p].open) polled.push_back({peers_[p].link.fd(), POLLIN, 0});
}

void Control::read_notices() {
  const Lock lock(mutex_);
  read_all_locked();
}

void Control::add_listener(const net::WakeUp* wake_up) {
  const Lock lock(mutex_);
  listeners_.push_back(wake_up);
}

void Control::remove_listener(const net::WakeUp* wake_up) {
  const Lock lock(mutex_);
  std::erase(listeners_, wake_up);
}

void Control::lost(int peer, const std::string& what, uint64_t sequence) {
  const auto p = static_cast<size_t>(peer);
  const auto give_up = Clock::now() + kLastWords;
  while (true) {
    pollfd polled{peers_[p].link.fd(), POLLIN, 0};
    {
      const Lock lock(mutex_);
      if (states_[p].open) read_locked(peer);
      if (states_[p].has_left) return;
      if (!states_[p].open || Clock::now() >= give_up) {
        const uint64_t finish = sequence == 0 ? joined_.load() : sequence - 1;
        return end_locked(failure_of(peer, what), finish, true);
      }
    }
    poll(&polled, 1, 10);
  }
}

// No connection has broken, so that nobody else can know: this rank tells.
Clock::time_point Control::look_after_hosts(Clock::time_point since, uint64_t sequence) {
  const auto now = Clock::now();
  if (now - since < HostWatch::kPatience) return since + HostWatch::kPatience;
  if (const auto silent = hosts_.look(now); silent && !has_left(silent->peer)) {
    const Error error =
        failure_of(silent->peer, str("cannot be reached from ", name(rank_),
                                     ": its host has answered nothing for ",
                                     static_cast<double>(silent->time.count()) / 1000, " s"));
    end(error, sequence == 0 ? joined_.load() : sequence - 1);
    if (on_unreachable_) on_unreachable_(error);
  }
  return hosts_.next_look();
}

bool Control::has_left(int peer) const {
  const Lock lock(mutex_);
  return states_[static_cast<size_t>(peer)].has_left;
}

void Control::report(const Notice& report) {
  const Lock lock(mutex_);
  auto& own = states_[static_cast<size_t>(rank_)].report;
  if (own && own->sequence == report.sequence && (own->sender >= 0 || report.sender < 0)) return;
  own = report;
  reported_ = std::max(reported_.load(), report.sequence);
  send_locked(encode(report));
}

std::vector<int> Control::missing_reports(uint64_t sequence) const {
  const Lock lock(mutex_);
  std::vector<int> missing;
  for (int p = 0; p < size(); ++p)
    if (const auto& report = states_[static_cast<size_t>(p)].report;
        !report || report->sequence < sequence)
      missing.push_back(p);
  return missing;
}

std::optional<Notice> Control::report_of(int peer, uint64_t sequence) const {
  const Lock lock(mutex_);
  const auto& report = states_[static_cast<size_t>(peer)].report;
  return report && report->sequence == sequence ? report : std::nullopt;
}

// The little that is ever sent here fits the memory of a socket; a peer for which it does not is
// gone or out of its mind. One that nothing is heard of any more may still hear.
void Control::send_locked(const std::string& bytes) {
  const iovec all{const_cast<char*>(bytes.data()), bytes.size()};
  for (Peer& peer : peers_)
    if (peer.link) peer.link.write({&all, 1});
}

void Control::read_all_locked() {
  for (int p = 0; p < size(); ++p)
    if (states_[static_cast<size_t>(p)].open) read_locked(p);
}

void Control::read_locked(int peer) {
  State& state = states_[static_cast<size_t>(peer)];
  net::Stream& link = peers_[static_cast<size_t>(peer)].link;
  char buffer[4096];
  const iovec room{buffer, sizeof buffer};
  for (int buffers = 0; state.open && buffers < kBuffersAtOnce; ++buffers) {
    const ssize_t got = link.read({&room, 1});
    const int error = errno;
    if (got < 0 && error == EINTR) continue;
    if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return;
    if (got > 0) {
      state.incoming.append(buffer, static_cast<size_t>(got));
      try {
        while (const auto notice = take_notice(state.incoming)) take_locked(peer, *notice);
      } catch (const Error& wrong) {
        state.open = false;
        end_locked(Error(wrong.code(), str(wrong.message(), " from ", name(peer)), task(peer)),
                   joined_, true);
      }
      continue;
    }
    state.open = false;
    if (!state.has_left)
      end_locked(failure_of(peer, link.failure(got == 0 ? 0 : error),
                            link.encrypted() && got < 0 && error == EPROTO ? Code::kDataLoss
                                                                           : Code::kUnavailable),
                 joined_, true);
    signal();
  }
}

void Control::take_locked(int peer, const Notice& notice) {
  State& state = states_[static_cast<size_t>(peer)];
  if (notice.kind == Notice::Kind::kEnd) {
    state.has_left = true;
    end_locked(Error(notice.code, notice.text, notice.peer), notice.sequence, false);
  } else if (notice.kind == Notice::Kind::kReport) {
    state.report = notice;
    reported_ = std::max(reported_.load(), notice.sequence);
    signal();
  }
}

void Control::signal() const {
  for (const net::WakeUp* listener : listeners_) listener->signal();
}

}  // namespace cohort::tcp
