#pragma once

#include <mutex>
#include <shared_mutex>

namespace cohort::parameter_server {

// A lock that many readers or one writer hold, in which a writer that waits comes before readers
// that have come after it: std::shared_mutex may let readers who take turns keep it out for ever.
class FairLock {
 public:
  void lock() {
    const std::lock_guard turn(turn_);
    lock_.lock();
  }
  void unlock() { lock_.unlock(); }
  void lock_shared() {
    const std::lock_guard turn(turn_);
    lock_.lock_shared();
  }
  void unlock_shared() { lock_.unlock_shared(); }

 private:
  std::mutex turn_;
  std::shared_mutex lock_;
};

}  // namespace cohort::parameter_server
