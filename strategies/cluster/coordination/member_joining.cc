#include <algorithm>
#include <utility>

#include "core/base/program.h"
#include "core/base/time_limits.h"
#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/join_message.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/member.h"

// How a task becomes a member.
namespace cohort::coordination {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kBetweenWaitingLines(5);
constexpr milliseconds kShortestPause(50), kLongestPause(800);
// How often a task that waits looks whether a person has asked it to end.
constexpr milliseconds kInterruptInterval(50);
// For the last message before this task gives up.
constexpr seconds kFarewell(1);

}  // namespace

void Member::join(milliseconds timeout) {
  join_started_ = next_heartbeat_ = Clock::now();
  join_deadline_ = join_started_ + clamped(timeout);
  next_waiting_line_ = join_started_ + kBetweenWaitingLines;
  if (rank() == 0) start_server(join_deadline_);
  for (size_t attempt = 0; !try_to_join(attempt); ++attempt) {
    const milliseconds pause = kShortestPause * (1 << std::min<size_t>(attempt, 4));
    std::unique_lock lock(mutex_);
    wait_joining(lock, Clock::now() + std::min(pause, kLongestPause), [] { return false; });
    if (Clock::now() >= join_deadline_) {
      lock.unlock();
      give_up(timed_out());
    }
  }
}

void Member::start_server(Time deadline) {
  for (;;) {
    try {
      server_ = std::make_unique<LeaderServer>(
          roster_, job_id_, timing_, security_,
          [this](const std::string& line) { print_(str(roster_.name(0), ": ", line)); });
      return;
    } catch (const Error& error) {
      // The name may become known; nothing else gets better by itself.
      if (error.code() != Code::kUnavailable || Clock::now() >= deadline) throw;
      std::unique_lock lock(mutex_);
      trouble_ = error.message();
      wait_joining(lock, Clock::now() + kLongestPause, [] { return false; });
    }
  }
}

bool Member::try_to_join(size_t attempt) {
  try {
    const std::vector<net::InternetAddress> endpoints = resolve(*roster_.leader());
    const net::InternetAddress& endpoint = endpoints[attempt % endpoints.size()];
    security_.check(str("between tasks and their leader at ", roster_.leader()->text()),
                    endpoint.is_loopback());
    link_.reset();
    {
      std::lock_guard lock(mutex_);
      link_closed_ = accepted_ = trouble_told_ = false;
    }
    leader_host_.emplace(endpoint);
    link_ = std::make_unique<LeaderLink>(*roster_.leader(), endpoint, timing_, security_, *this);
  } catch (const Error& error) {
    if (error.code() != Code::kUnavailable) throw;
    std::lock_guard lock(mutex_);
    trouble_ = error.message();
    return false;
  }
  send_join();
  std::unique_lock lock(mutex_);
  wait_joining(lock, join_deadline_,
               [&] { return phase_ != Phase::kJoining || refusal_ || link_closed_; });
  if (phase_ == Phase::kRunning) return true;
  if (failure_) throw *failure_;
  if (refusal_) throw *refusal_;
  if (link_closed_) return false;
  lock.unlock();
  give_up(timed_out());
}

bool Member::wait_joining(std::unique_lock<std::mutex>& lock, Time until,
                          const std::function<bool()>& ready) {
  until = std::min(until, join_deadline_);
  for (;;) {
    const auto look = Clock::now() + kInterruptInterval;
    if (changed_.wait_until(lock, std::min({until, next_heartbeat_, next_waiting_line_, look}),
                            [&] { return roll_call_ != 0 || ready(); })) {
      if (roll_call_ == 0) return true;
      answer_roll_call();
      if (ready()) return true;
    }
    if (interrupted()) {
      Error error(Code::kCancelled, "interrupted while it waited for " + whom_it_waits_for());
      lock.unlock();
      give_up(error);
    }
    const auto now = Clock::now();
    if (now >= next_heartbeat_) {
      next_heartbeat_ = now + timing_.heartbeat;
      proto::FromMember message;
      message.mutable_heartbeat();
      if (accepted_ && link_) link_->send(message);
    }
    if (accepted_) doubt_leader(clock_.now(now) - leader_heard_);
    if (now >= next_waiting_line_) {
      next_waiting_line_ += kBetweenWaitingLines;
      const auto since = std::chrono::duration_cast<seconds>(now - join_started_);
      const bool reason = !accepted_ && !trouble_.empty();
      notice(str("waiting for ", whom_it_waits_for(), " since ", since.count(), " s",
                 reason ? ": " : "", reason ? trouble_ : ""));
    }
    print_notices(lock);
    if (now >= until) return ready();
  }
}

// It may only be frozen, and others still come: what has been lost is the connection.
void Member::doubt_leader(Time::duration silence) {
  if (rank() == 0 || silence < timing_.suspect) return;
  const auto silent = std::chrono::duration_cast<milliseconds>(silence);
  if (silence < timing_.dead) return suspect_leader(silent);
  link_closed_ = trouble_told_ = true;
  trouble_ = str("it has been silent for ", in_words(silent));
  lose_connection(trouble_);
}

void Member::lose_connection(const std::string& how) {
  accepted_ = false;
  notice(str("lost ", leader(), " while tasks gather: ", how, "; trying again"));
}

void Member::send_join() {
  proto::FromMember message;
  write_join(roster_, job_id_, incarnation_, message.mutable_join());
  link_->send(message);
}

// Says nothing of a connection that has been given up: the next one will be asked.
void Member::answer_roll_call() {
  proto::FromMember message;
  message.mutable_present()->set_roll_call(std::exchange(roll_call_, 0));
  if (accepted_) link_->send(message);
}

std::string Member::whom_it_waits_for() const {
  if (!accepted_) return str("the leader, ", roster_.described(0));
  const int unnamed = missing_count_ - static_cast<int>(missing_.size());
  return roster_.described(missing_, missing_.size()) +
         (unnamed > 0 ? str(" and ", unnamed, " more") : "");
}

Error Member::timed_out() const {
  std::lock_guard lock(mutex_);
  const auto waited = std::chrono::duration_cast<milliseconds>(join_deadline_ - join_started_);
  std::string message = str("waited ", in_words(waited), " for ", whom_it_waits_for());
  if (accepted_) {
    message += str("; ", size() - missing_count_, " of ", size(), " tasks have joined");
  } else if (!trouble_.empty()) {
    message += ": " + trouble_;
  }
  const int culprit = accepted_ && missing_.size() == 1 ? missing_[0] : 0;
  const bool one = !accepted_ || missing_count_ == 1;
  return Error(Code::kDeadlineExceeded, message, one ? task_name(culprit) : "");
}

void Member::give_up(const Error& error) {
  bool accepted = false;
  {
    std::lock_guard lock(mutex_);
    accepted = accepted_;
  }
  if (link_) {
    // Who leads tells those that wait with it; others just go.
    proto::FromMember last;
    if (rank() == 0) {
      last.mutable_report()->set_code(static_cast<int>(error.code()));
      last.mutable_report()->set_message(error.message());
      last.mutable_report()->set_peer(error.peer());
    } else {
      last.mutable_quit();
    }
    link_->send(last);
    link_->drain(accepted ? kFarewell : seconds(0));
  }
  throw error;
}

}  // namespace cohort::coordination
