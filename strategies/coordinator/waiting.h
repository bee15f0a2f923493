#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "core/base/program.h"
#include "core/runtime/trace.h"

namespace cohort::coordinator {

// How often a wait of a user's thread looks whether a person has asked it to end.
inline constexpr std::chrono::milliseconds kInterruptInterval(50);

using Deadline = std::chrono::steady_clock::time_point;

// None, or beyond what the clock can say: never.
inline Deadline deadline_after(std::optional<std::chrono::milliseconds> timeout) {
  const Deadline now = std::chrono::steady_clock::now();
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::max() - now);
  if (!timeout || *timeout >= longest) return Deadline::max();
  return now + std::max(*timeout, std::chrono::milliseconds(0));
}

inline void check_interrupted() {
  if (interrupted()) fail(Code::kCancelled, "interrupted");
}

// Before a wait for workers: these may wait for another function to be traced, and functions are
// traced one at a time. kFailedPrecondition inside a body.
inline void require_no_trace() {
  if (is_tracing_function())
    fail(Code::kFailedPrecondition,
         "the body of a function cannot wait for workers while it is traced: wait before, and use "
         "the result in the body");
}

// Waits until `ready`, to `end` at most; false when it is over. kCancelled after an interrupt.
template <typename Ready>
bool wait_interruptibly(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                        Deadline end, const Ready& ready) {
  while (!ready()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return false;
    check_interrupted();
    require_no_trace();
    changed.wait_until(lock, std::min(end, now + kInterruptInterval));
  }
  return true;
}

}  // namespace cohort::coordinator
