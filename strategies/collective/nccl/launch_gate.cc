#include "strategies/collective/nccl/launch_gate.h"

namespace cohort {

void LaunchGate::pass(std::string_view what, std::optional<std::chrono::milliseconds> limit,
                      const std::function<void()>& launch) {
  try {
    meet(what, limit);
    launch();
    meet(what, limit);
  } catch (const Error& error) {
    close(error);
    throw;
  }
}

void LaunchGate::close(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) closed_ = error;
  }
  changed_.notify_all();
}

void LaunchGate::meet(std::string_view what, std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  if (closed_) throw *closed_;
  const int64_t meeting = meetings_;
  if (++waiting_ == ranks_) {
    waiting_ = 0;
    ++meetings_;
    lock.unlock();
    changed_.notify_all();
    return;
  }
  const auto is_over = [&] { return closed_ || meetings_ != meeting; };
  if (!limit)
    changed_.wait(lock, is_over);
  else if (!changed_.wait_for(lock, *limit, is_over))
    // Closed before the lock is given up: who comes now must not find that all are there.
    closed_ = Error(Code::kDeadlineExceeded,
                    str("a rank has waited for ", limit->count(),
                        " ms for the others of its process to start ", what, " (timeout_seconds)"));
  if (meetings_ == meeting) throw *closed_;
}

}  // namespace cohort
