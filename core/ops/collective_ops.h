#pragma once

#include "core/collective/communicator.h"
#include "core/graph/graph.h"

// Communication among the replicas in sync. Every replica must trace the same calls in the same
// order.
namespace cohort::ops {

// Element by element over all replicas, the same bits on each. The values are reduced as one
// bucket. Sum and mean are differentiable (the gradient of a sum is the sum of the gradients,
// Horovod's rule).
std::vector<Value> all_reduce(const std::vector<Value>& values, ReduceOp op = ReduceOp::kSum);

}  // namespace cohort::ops
