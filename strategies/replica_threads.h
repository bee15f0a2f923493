#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/own_process.h"

namespace cohort {

// One lasting thread for each local replica. Threads last because an OpenMP team belongs to the
// thread that starts it: a new thread each step would start a new team each step.
class ReplicaThreads {
 public:
  // kResourceExhausted where the system has not so many.
  explicit ReplicaThreads(int count);
  ~ReplicaThreads();  // ends and joins the threads
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Calls work(replica) on every thread at once and returns when all have. `work` must not throw.
  // kFailedPrecondition in a fork.
  void run(const std::function<void(int)>& work);

 private:
  void loop(int replica);
  void end_threads();

  const OwnProcess process_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(int)>* work_ = nullptr;
  int64_t generation_ = 0;  // of the current work
  int unfinished_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cohort
