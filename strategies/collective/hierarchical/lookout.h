#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/collective/communicator.h"

namespace cohort::hierarchical {

// While it lives, asks from time to time whether a group may go on, on a thread of its own, and
// ends the group by the first error that the answer is.
class Lookout {
 public:
  // Both outlive it. Where `check` is null, nothing is asked.
  Lookout(const std::function<void()>& check, Communicator& group);
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

 private:
  void run();

  const std::function<void()>& check_;
  Communicator& group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace cohort::hierarchical
