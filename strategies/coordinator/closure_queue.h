#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/coordinator/closure.h"

namespace cohort::coordinator {

// Closures on their way from those who schedule to those who have them executed, and the rule for
// errors: the first one is kept, and from then on nothing is handed out. The next put(), join() or
// done() has all others stopped, waits until nothing is in flight, marks what is left as cancelled,
// forgets the error and throws it. Where something does not stop in time, that is kDeadlineExceeded
// instead, which says what there is and who is at it, and the error is left to the call after it.
// All waits end with kCancelled after an interrupt. Thread-safe.
//
// What was executed may wait in sums on its worker, and be gone with it: such closures are held by
// who had them executed, with their lanes, until settle(). Where it is gone they are executed
// again, in front of all else; what is known of their results stays. Where pushes of sums may have
// been made, of calls that are not known, they and those in flight are a unit: one worker gets them
// in their order, when it has nothing else in flight, and forgets its own sums before. For as long
// as a unit waits for that, workers get nothing else, but for those whose sums cannot be made
// again.
class ClosureQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Timeout = std::optional<std::chrono::milliseconds>;
  struct Counts {
    uint64_t queued = 0, in_flight = 0, executed = 0, failed = 0, cancelled = 0, retried = 0;
    uint64_t again = 0;  // executed, or failed, that had been executed before
    // Threads that wait in put() or join(), but not for an error to be thrown.
    uint64_t putting = 0, joining = 0;
  };

  struct Options {
    size_t capacity = 0;                       // so many closures wait at most; 0: any number
    int max_attempts = 1;                      // one may be lost with its worker so many times
    std::chrono::milliseconds put_timeout{0};  // put() waits for so long
    // What is in flight has so long to stop for an error, or less where join() has less.
    std::chrono::milliseconds stop_timeout{0};
    std::function<void()> cancel;      // asks for what is in flight to be given up; must not block
    std::function<std::string()> who;  // is at what, for messages
  };

  explicit ClosureQueue(Options options) : options_(std::move(options)) {}

  // --- Who schedules

  // Waits while the queue is full, or somebody waits in join(); where that takes too long,
  // kDeadlineExceeded says which, what there is and who is at it, and `closure` is dropped.
  void put(ClosurePtr closure);
  // From now on that throws this, where no other error waits to be thrown.
  void close(const Error& why);
  // Waits until nothing is queued or in flight, also before an error is thrown.
  void join(Timeout timeout);
  bool done();

  // --- Who executes; what take() has handed out comes back by one of the others

  struct Taker {
    int worker = 0;
    bool is_idle = true;    // it has nothing in flight
    bool is_mixed = false;  // of what it holds, something has been sent
  };
  // Up to `most` closures, sharing what there is with the others who wait: the first one, and more
  // as long as the arguments of all have no more than `bytes`. Empty at `until`, and when
  // `wanted_elsewhere` is set and wake() called.
  std::vector<ClosurePtr> take(size_t most, size_t bytes, Time until,
                               const std::atomic<bool>& wanted_elsewhere, const Taker& taker);
  void wake();
  void finish(const std::vector<ClosurePtr>& closures);
  // So many have been executed, and are held; `first` of them for the first time.
  void hold(size_t count, size_t first);
  // What was held is so no more: it has had its effect, or is given up.
  void settle(const std::vector<ClosurePtr>& held);
  // The effect of what was held is gone, and nothing of it was sent.
  void execute_again(std::vector<ClosurePtr> held);
  // A worker is lost, with what it held and those in flight that sum, as it was given them.
  // `is_unit`: also where nothing was in flight.
  void lose(int worker, std::vector<ClosurePtr> held, std::vector<ClosurePtr> in_flight,
            bool is_unit);
  // With an error of its own.
  void fail(ClosurePtr closure, const Error& error);
  // Not executed, or not known to be: they will be again, before all that wait.
  enum class PutBack { kLost, kReturned };
  void put_back(std::vector<ClosurePtr> closures, PutBack why);

  // An error that is no closure's.
  void fail(const Error& error);
  // The same where something is queued or in flight and nobody will be there to execute it: what
  // was executed, and would be again, is given up, too.
  void abandon(const Error& error);
  // Whether somebody waits in take() in vain.
  bool is_anybody_idle() const { return idle_ > 0; }
  // Whether what is in flight is to be given up for an error: from before `cancel`, for as long as
  // somebody waits for that. What take() has handed out, and `cancel` has not found yet, is to be
  // given up, too.
  bool is_cancelling() const { return raising_; }
  // Whether an error waits to be thrown.
  bool has_error() const;
  Counts counts() const;
  // Cancels what waits; take() returns nothing from now on.
  void stop();

 private:
  // REQUIRES, below: mutex_ held.
  bool is_done() const { return num_queued() == 0 && in_flight_ == 0; }
  size_t num_queued() const;
  bool is_full() const { return options_.capacity > 0 && waiting_.size() >= options_.capacity; }
  // Waits until there is room and nobody joins, or an error to be thrown.
  void wait_to_put(std::unique_lock<std::mutex>& lock);
  // Throws the error, if there is one; kDeadlineExceeded where it cannot by `end`.
  void raise(std::unique_lock<std::mutex>& lock, Time end);
  // Says what a wait that has begun then has waited for; first of all `why`.
  [[noreturn]] void overdue(std::unique_lock<std::mutex>& lock, Time begin,
                            const std::string& why = "");
  void cancel(ClosurePtr closure);
  void give_lane(Closure& closure);
  // What a worker may take from now; null: nothing.
  std::deque<ClosurePtr>* source_of(const Taker& taker);
  // Those of the first unit are the worker's.
  std::deque<ClosurePtr>* claim(int worker);
  // Whether it is to be executed once more; if not, it has got its error.
  bool retry(ClosurePtr& closure, PutBack why);
  // Of everything that waits: what has not been executed. Units of which nothing is stay units.
  void cancel_waiting();
  // An error cancels what has not been executed.
  bool is_cancelled(const Closure& closure) const;
  // Where it has been executed before, it counts as that, else as what `first` counts.
  void count(const Closure& closure, uint64_t& first);
  // Something more waits. While there is a unit, not everybody may take it.
  void offer();
  void landed(size_t count);
  void keep(const Error& error);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable work_, changed_;
  std::deque<ClosurePtr> waiting_;
  std::deque<std::deque<ClosurePtr>> units_;         // that no worker has
  std::map<int, std::deque<ClosurePtr>> of_worker_;  // what workers are still to get of theirs
  uint64_t last_unit_ = 0;
  size_t in_flight_ = 0;
  Counts counts_;
  std::optional<Error> error_;
  std::optional<Error> closed_;  // what put() throws
  std::atomic<bool> raising_ = false;
  bool stopped_ = false;
  bool abandoned_ = false;  // with the error
  int joining_ = 0;
  std::atomic<int> idle_ = 0;
  std::vector<uint64_t> free_lanes_, lane_sequences_;  // sequences by lane
};

}  // namespace cohort::coordinator
