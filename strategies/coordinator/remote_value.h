#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/distribute/per_replica.h"
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
  // Waits for the function's results, as many as it returns. kFailedPrecondition where several
  // replicas of a worker have computed them: fetch_per_replica() has those of each. Throws the
  // function's error, and kCancelled where it was dropped because another one had failed: schedule
  // it again then. kDeadlineExceeded after `timeout`, of which there is none by default for the
  // reason that ClusterCoordinator has; kCancelled also after an interrupt (core/base/program.h).
  std::vector<Tensor> fetch(std::optional<std::chrono::milliseconds> timeout = {}) const;
  // The same where a worker has any number of replicas: a PerReplica for each result, as
  // Strategy::run returns them; Strategy::reduce and gather make one value of it.
  std::vector<PerReplica<Tensor>> fetch_per_replica(
      std::optional<std::chrono::milliseconds> timeout = {}) const;
  // The only result, as fetch() has it; kInvalidArgument where the function returns none, or
  // several.
  Tensor get(std::optional<std::chrono::milliseconds> timeout = {}) const;

 private:
  std::shared_ptr<coordinator::RemoteResult> result_;
};

}  // namespace cohort
