#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/error.h"

namespace cohort {

namespace coordination {

// Who wants to know of a failure. Thread-safe.
class FailureCallbacks {
 public:
  using Callback = std::function<void(const Error&)>;
  uint64_t add(Callback callback);
  // Waits for a call of this callback on another thread.
  void remove(uint64_t id);
  // Calls all that were added and not called yet. One thread at a time. What they throw is lost.
  void call(const Error& error);

 private:
  std::mutex mutex_;
  std::condition_variable returned_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Callback> waiting_;
  std::optional<uint64_t> running_;
  std::thread::id running_on_;
};

}  // namespace coordination

// Ends a callback of Membership::on_failure when it is destroyed, which waits for a call under way
// on another thread. May outlive the membership.
class FailureWatch {
 public:
  FailureWatch() = default;
  FailureWatch(std::shared_ptr<coordination::FailureCallbacks> callbacks, uint64_t id)
      : callbacks_(std::move(callbacks)), id_(id) {}
  FailureWatch(FailureWatch&& other) noexcept = default;
  FailureWatch& operator=(FailureWatch&& other) noexcept;
  ~FailureWatch();

 private:
  std::shared_ptr<coordination::FailureCallbacks> callbacks_;
  uint64_t id_ = 0;
};

}  // namespace cohort
