#include <algorithm>
#include <new>
#include <utility>

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/member.h"

// What a member does by itself.
namespace cohort::coordination {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

// What there is no memory for is left to the next pulse.
template <typename Work>
void attempt(std::unique_lock<std::mutex>& lock, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    if (!lock.owns_lock()) lock.lock();
  }
}

}  // namespace

void Member::pulse() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    attempt(lock, [&] { beat(); });
    attempt(lock, [&] { watch_leader(); });
    attempt(lock, [&] { vote(); });
    tell(lock);
    changed_.wait_until(lock, next_pulse(), [&] { return wake_pulse_ || stopping_; });
    wake_pulse_ = false;
  }
  tell(lock);
}

void Member::tell(std::unique_lock<std::mutex>& lock) {
  attempt(lock, [&] { print_notices(lock); });
  attempt(lock, [&] { run_callbacks(lock); });
}

void Member::beat() {
  const auto now = Clock::now();
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + timing_.heartbeat;
  proto::FromMember message;
  message.mutable_heartbeat();
  link_->send(message);
}

Member::Time Member::next_pulse() {
  if (!watches_leader()) return next_heartbeat_;
  const auto now = Clock::now();
  const auto silence = clock_.now(now) - leader_heard_;
  auto next = next_heartbeat_;
  for (const auto limit : {asks_after(), timing_.suspect, timing_.dead})
    if (silence < limit) next = std::min(next, now + (limit - silence));
  return silence < asks_after() ? next : std::min(next, leader_host_->next_question());
}

// The leader itself has nobody to watch.
bool Member::watches_leader() const {
  return rank() != 0 && (phase_ == Phase::kRunning || phase_ == Phase::kLeaving);
}

void Member::watch_leader() {
  if (!watches_leader()) return;
  const auto now = Clock::now();
  const auto silence = duration_cast<milliseconds>(clock_.now(now) - leader_heard_);
  if (silence < asks_after()) return leader_host_->forget();
  const bool is_host_silent = leader_host_->ask(now, timing_.heartbeat);
  if (silence >= timing_.dead) {
    lose_leader(str(" counts as dead: silent for ", in_words(silence)));
  } else if (silence >= timing_.suspect && is_host_silent) {
    lose_leader(str(" cannot be reached: silent for ", in_words(silence),
                    ", and its host does not answer"));
  } else if (silence >= timing_.suspect) {
    suspect_leader(silence);
  }
}

void Member::suspect_leader(milliseconds silence) {
  if (std::exchange(leader_suspected_, true)) return;
  notice(str(leader(), " has been silent for ", in_words(silence)));
}

void Member::lose_leader(const std::string& how) {
  fail(Error(Code::kUnavailable, leader() + how, roster_.name(0)));
  // It may hear what it can no longer answer.
  proto::FromMember message;
  write_fault(*failure_, message.mutable_report());
  link_->send(message);
}

void Member::vote() {
  if (!stop_requested_ || voted_) return;
  proto::FromMember message;
  // The step that is under way, if it is, has to be finished.
  message.mutable_stop_vote()->set_step(steps_done_.load(std::memory_order_seq_cst) + 1);
  link_->send(message);
  voted_ = true;
}

void Member::notice(const std::string& line) {
  notices_.push_back(str(roster_.name(rank()), ": ", line));
  wake_pulse_ = true;
}

void Member::print_notices(std::unique_lock<std::mutex>& lock) {
  while (!notices_.empty()) {
    const std::string line = std::move(notices_.front());
    notices_.pop_front();
    lock.unlock();
    print_(line);
    lock.lock();
  }
}

void Member::run_callbacks(std::unique_lock<std::mutex>& lock) {
  if (!failure_) return;
  const Error error = *failure_;
  lock.unlock();
  callbacks_->call(error);
  lock.lock();
}

}  // namespace cohort::coordination
