#include "strategies/cluster/coordination/failure_watch.h"

#include <utility>

namespace cohort {
namespace coordination {

uint64_t FailureCallbacks::add(Callback callback) {
  std::lock_guard lock(mutex_);
  waiting_.emplace(++last_id_, std::move(callback));
  return last_id_;
}

void FailureCallbacks::remove(uint64_t id) {
  std::unique_lock lock(mutex_);
  waiting_.erase(id);
  if (running_on_ == std::this_thread::get_id()) return;
  returned_.wait(lock, [&] { return running_ != id; });
}

void FailureCallbacks::call(const Error& error) {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    auto next = waiting_.extract(waiting_.begin());
    running_ = next.key();
    running_on_ = std::this_thread::get_id();
    lock.unlock();
    try {
      next.mapped()(error);
    } catch (...) {  // its thread is ours, and nobody is there to catch
    }
    lock.lock();
    running_.reset();
    running_on_ = {};
    returned_.notify_all();
  }
}

}  // namespace coordination

FailureWatch& FailureWatch::operator=(FailureWatch&& other) noexcept {
  std::swap(callbacks_, other.callbacks_);
  std::swap(id_, other.id_);
  return *this;
}

FailureWatch::~FailureWatch() {
  if (callbacks_) callbacks_->remove(id_);
}

}  // namespace cohort
