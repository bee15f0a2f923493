#include "strategies/parameter_server/update_team.h"

#include <utility>

#include "core/base/start_threads.h"

namespace cohort::parameter_server {

UpdateTeam::UpdateTeam(int threads)
    : threads_(threads), leader_(start_thread([this] { lead(); })) {}

UpdateTeam::~UpdateTeam() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  leader_.join();
}

void UpdateTeam::run(const std::function<void()>& work) {
  const std::lock_guard turn(turn_);
  std::unique_lock lock(mutex_);
  work_ = &work;
  changed_.notify_all();
  changed_.wait(lock, [this] { return work_ == nullptr; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void UpdateTeam::lead() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || work_ != nullptr; });
    if (ending_) return;
    const std::function<void()>& work = *work_;
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = std::move(error);
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace cohort::parameter_server
