#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "core/base/program.h"

namespace cohort::coordinator {

// How often a wait of a user's thread looks whether a person has asked it to end.
inline constexpr std::chrono::milliseconds kInterruptInterval(50);

// Waits until `ready`, `timeout` at most; false when it is over. kCancelled after an interrupt.
template <typename Ready>
bool wait_interruptibly(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                        std::optional<std::chrono::milliseconds> timeout, const Ready& ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = timeout ? Clock::now() + *timeout : Clock::time_point::max();
  while (!ready()) {
    const auto now = Clock::now();
    if (now >= end) return false;
    if (interrupted()) fail(Code::kCancelled, "interrupted");
    changed.wait_until(lock, std::min(end, now + kInterruptInterval));
  }
  return true;
}

}  // namespace cohort::coordinator
