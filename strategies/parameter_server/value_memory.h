#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/tensor/tensor.h"

namespace cohort::parameter_server {

// Stands before a value that other processes copy while it may change: a sequence lock (Boehm, Can
// Seqlocks Get Along With Programming Language Memory Models?, 2012). Whoever writes the value does
// so between begin() and end(), one at a time; a copy is whole when still() holds after it.
class alignas(kBufferAlignment) ValueGuard {
 public:
  void begin() {
    step(std::memory_order_relaxed);
    fence(std::memory_order_release);
  }
  void end() { step(std::memory_order_release); }
  // For who holds off writers: what a copy made from now on is compared with. Never 0.
  uint64_t sequence() const { return count_.load(std::memory_order_relaxed); }
  bool still(uint64_t sequence) const {
    fence(std::memory_order_acquire);
    return count_.load(std::memory_order_relaxed) == sequence;
  }

 private:
  void step(std::memory_order order) {
    count_.store(count_.load(std::memory_order_relaxed) + 1, order);
  }
  // ThreadSanitizer knows no fences; its processors (x86) need none here.
  static void fence(std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
    std::atomic_signal_fence(order);
#else
    std::atomic_thread_fence(order);
#endif
  }

  std::atomic<uint64_t> count_ = 2;
};

// Stands while a value is written; without a guard, it is nothing.
class ValueWriting {
 public:
  explicit ValueWriting(ValueGuard* guard) : guard_(guard) {
    if (guard_ != nullptr) guard_->begin();
  }
  ~ValueWriting() {
    if (guard_ != nullptr) guard_->end();
  }
  ValueWriting(const ValueWriting&) = delete;
  ValueWriting& operator=(const ValueWriting&) = delete;

 private:
  ValueGuard* const guard_;
};

// Where a server keeps values that callers of its host copy for themselves. Thread-safe.
class ValueMemory {
 public:
  struct Place {
    std::shared_ptr<Buffer> value;  // keeps its guard, and all the memory it is cut from, alive
    ValueGuard* guard = nullptr;
  };
  // Memory for a value, behind a guard of its own; nothing where it is so small that a copy costs
  // less, or where there is no memory that others could map.
  Place take(size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<Buffer> block_;
  size_t used_ = 0, total_ = 0;
};

// The guard of a value that others have put there.
inline const ValueGuard& guard_of(const char* value) {
  return *reinterpret_cast<const ValueGuard*>(value - sizeof(ValueGuard));
}

}  // namespace cohort::parameter_server
