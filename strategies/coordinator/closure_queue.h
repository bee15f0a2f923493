#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "strategies/coordinator/closure.h"

namespace cohort::coordinator {

// Closures on their way from those who schedule to those who have them executed, and the rule for
// errors: the first one is kept, and from then on nothing is handed out. The next put(), join() or
// done() has all others stopped, waits until nothing is in flight, marks what is left as cancelled,
// forgets the error and throws it. Where it does not get that far, the error is left to the call
// after it. All waits end with kCancelled after an interrupt. Thread-safe.
class ClosureQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Timeout = std::optional<std::chrono::milliseconds>;
  struct Counts {
    uint64_t queued = 0, in_flight = 0, executed = 0, failed = 0, cancelled = 0, retried = 0;
  };

  // `capacity` closures wait at most, 0: any number. One may be lost with its worker
  // `max_attempts` times. `cancel` asks for what is in flight to be given up; it must not block.
  ClosureQueue(size_t capacity, int max_attempts, std::function<void()> cancel);

  // --- Who schedules

  // Waits while the queue is full, or somebody waits in join().
  void put(ClosurePtr closure);
  // Waits until nothing is queued or in flight, also before an error is thrown. kDeadlineExceeded
  // says what there is; `who` adds by whom.
  void join(Timeout timeout, const std::function<std::string()>& who);
  bool done();

  // --- Who executes; what take() has handed out comes back by one of the four others

  // Up to `most` closures, sharing what there is with the others who wait: the first one, and more
  // as long as the arguments of all have no more than `bytes`. Empty at `until`, when
  // `wanted_elsewhere` is set and wake() called, and when nothing is to be executed any more.
  std::vector<ClosurePtr> take(size_t most, size_t bytes, Time until,
                               const std::atomic<bool>& wanted_elsewhere);
  void wake();
  void finish(std::vector<ClosurePtr> closures);
  // With an error of its own.
  void fail(ClosurePtr closure, const Error& error);
  // Not executed, or not known to be: they will be again, before all that wait.
  enum class PutBack { kLost, kReturned };
  void put_back(std::vector<ClosurePtr> closures, PutBack why);

  // An error that is no closure's.
  void fail(const Error& error);
  // Whether somebody waits in take() in vain.
  bool is_anybody_idle() const { return idle_ > 0; }
  Counts counts() const;
  // Cancels what waits; take() returns nothing from now on.
  void stop();

 private:
  // REQUIRES, below: mutex_ held.
  bool is_done() const { return waiting_.empty() && in_flight_ == 0; }
  // Throws the error, if there is one; returns with it where it has not been able to by `end`.
  void raise(std::unique_lock<std::mutex>& lock, Time end);
  void cancel(ClosurePtr closure);
  void give_lane(Closure& closure);
  void landed(size_t count);
  void keep(const Error& error);

  const size_t capacity_;
  const int max_attempts_;
  const std::function<void()> cancel_;
  mutable std::mutex mutex_;
  std::condition_variable work_, changed_;
  std::deque<ClosurePtr> waiting_;
  size_t in_flight_ = 0;
  Counts counts_;
  std::optional<Error> error_;
  bool raising_ = false, stopped_ = false;
  int joining_ = 0;
  std::atomic<int> idle_ = 0;
  std::vector<uint64_t> free_lanes_, lane_sequences_;  // sequences by lane
};

}  // namespace cohort::coordinator
