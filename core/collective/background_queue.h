#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/collective/call.h"

namespace cohort {

// Started collectives of one rank, run in order, one at a time, by a background thread: turns a
// blocking `run` into Communicator's start and wait. Who waits lends a hand: its thread, with its
// team, runs what has not begun instead of sleeping. One caller at a time.
class BackgroundQueue {
 public:
  // The thread is made by the first start, and uses one thread for its loops.
  explicit BackgroundQueue(std::function<void(const Call&)> run) : run_(std::move(run)) {}
  // Forgets what has not begun and returns when nothing runs any more.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  // As Communicator's.
  int64_t start(const Call& call);
  // As start(), of a call that waits for nobody: it has ended when this returns.
  int64_t start_alone(const Call& call);
  void wait(int64_t id);
  bool is_done(int64_t id);
  // Returns when all started operations have ended, for a blocking call to follow them. Their
  // errors are left to their waits.
  void drain();

 private:
  enum class State { kQueued, kRunning, kEnded };
  struct Operation {
    int64_t id;
    Call call;
    State state = State::kQueued;
    std::exception_ptr error = nullptr;
  };
  using Lock = std::unique_lock<std::mutex>;

  void loop();
  // kInvalidArgument for one that is not here.
  std::vector<Operation>::iterator find(int64_t id);
  // The first operation that is not ended, or null.
  Operation* next();
  // Runs the next operation, or waits for the one that runs.
  void advance(Lock& lock);
  void run(Operation& operation, Lock& lock);

  const std::function<void(const Call&)> run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Operation> operations_;  // started and not waited for, in the order of starting
  int64_t started_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cohort
