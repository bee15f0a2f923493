#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/strategies/on_workers.h"
#include "tests/train/testing.h"

// What tests of training by several workers share, each of which is a thread with a strategy of its
// own.
namespace cohort::testing {

// What each worker has found, by rank.
template <typename T>
class Found {
 public:
  void set(const Strategy& strategy, T value) {
    const std::lock_guard lock(mutex_);
    values_[strategy.workers().rank()] = std::move(value);
  }
  const std::map<int, T>& values() const { return values_; }
  // The value that all have.
  T common() const {
    for (const auto& [rank, value] : values_) EXPECT_EQ(value, values_.at(0)) << "worker " << rank;
    return values_.at(0);
  }

 private:
  std::mutex mutex_;
  std::map<int, T> values_;
};

inline FitOptions quietly(std::vector<CallbackPtr> callbacks = {}, int64_t epochs = 2) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

}  // namespace cohort::testing
