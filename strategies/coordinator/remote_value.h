#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace cohort {

namespace coordinator {
class RemoteResult;
}  // namespace coordinator

// What a scheduled function will have returned. Results are brought to the coordinator as soon as
// they are there, so they outlive the worker that computed them. A cheap handle; thread-safe.
class RemoteValue {
 public:
  explicit RemoteValue(std::shared_ptr<coordinator::RemoteResult> result)
      : result_(std::move(result)) {}

  // Whether fetch() would not wait.
  bool is_ready() const;
  // Waits for the function's results, as many as it returns. Throws the function's error, and
  // kCancelled where it was dropped because another one had failed: schedule it again then.
  // kDeadlineExceeded after `timeout`; kCancelled also after an interrupt (core/base/program.h).
  std::vector<Tensor> fetch(std::optional<std::chrono::milliseconds> timeout = {}) const;
  // The only result; kInvalidArgument where the function returns none, or several.
  Tensor get(std::optional<std::chrono::milliseconds> timeout = {}) const;

 private:
  std::shared_ptr<coordinator::RemoteResult> result_;
};

}  // namespace cohort
