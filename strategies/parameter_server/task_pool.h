#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort::parameter_server {

// Threads that run what they are given, in the order in which it is given. Thread-safe.
class TaskPool {
 public:
  // kResourceExhausted where the system has not so many.
  explicit TaskPool(int num_threads);
  // What has not begun is dropped; what runs is waited for.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // `task` must not throw, but for want of memory: then it ends there, and others go on.
  void run(std::function<void()> task);
  // As the end: what is given from now on is dropped as well.
  void stop();

 private:
  void work();
  // Drops what has not begun, and makes the threads end.
  void end_threads();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cohort::parameter_server
