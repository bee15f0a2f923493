#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace cohort::coordinator {

// Where a closure's results, or its error, arrive: once. Thread-safe.
class RemoteResult {
 public:
  // Of a function that so many replicas of a worker execute.
  explicit RemoteResult(int replicas = 1) : replicas_(replicas) {}

  int replicas() const { return replicas_; }
  // Of one replica after the other. Of several sets, the first counts.
  void set(std::vector<Tensor> values);
  void set(const Error& error);

  bool is_ready() const;
  std::vector<Tensor> wait(std::optional<std::chrono::milliseconds> timeout) const;

 private:
  const int replicas_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ready_ = false;
  std::vector<Tensor> values_;
  std::optional<Error> error_;
};

}  // namespace cohort::coordinator
