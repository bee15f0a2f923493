#pragma once

#include <cstdint>
#include <vector>

#include "core/distribute/per_replica.h"
#include "core/tensor/tensor.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/worker_resources.h"

namespace cohort::coordinator {

// A closure with the tensors that it is given, which may have to wait for its function.
struct ReadyClosure {
  uint64_t id = 0, function = 0;
  CallSignature signature;
  PerReplica<std::vector<Tensor>> inputs;
  uint64_t seed = 0, number = 0;
  uint64_t lane = 0, lane_sequence = 0;
};

// What `run` asks for, by so many replicas, with what its arguments name of the resources: values,
// and the next batches of datasets.
// kInvalidArgument for what does not fit, and the errors of WorkerResources.
ReadyClosure gather(const Run& run, WorkerResources& resources, int replicas);

}  // namespace cohort::coordinator
