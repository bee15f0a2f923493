#pragma once

#include <atomic>

namespace cohort {

// While one is alive, what this thread is at ends with kCancelled soon after `cancelled` was set:
// a function between two of its kernels, or on a GPU, which gets all of them at once, before them;
// a dataset between two elements, also where it waits for what its threads make. Of nested ones the
// innermost counts. `cancelled` must stay as long.
class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>& cancelled);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const std::atomic<bool>* const previous_;
};

// kCancelled where this thread is in a scope whose flag is set. Costs nothing to speak of.
void check_cancelled();

}  // namespace cohort
