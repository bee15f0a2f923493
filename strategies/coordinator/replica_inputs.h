#pragma once

#include <string>
#include <vector>

#include "core/distribute/per_replica.h"
#include "core/runtime/replica_group.h"
#include "core/tensor/tensor.h"
#include "strategies/coordinator/messages.h"

namespace cohort::coordinator {

// What each of a worker's replicas is given in a call: the rows of a batch of its own, by
// split_rows, and all else alike. Both are kInvalidArgument for a batch without rows, or whose
// tensors have different numbers of them.
std::vector<Signature> signatures_on_replicas(const CallSignature& call, int replicas);
// The same for the tensors of one batch, sharing memory.
PerReplica<std::vector<Tensor>> rows_on_replicas(const std::vector<Tensor>& batch, int replicas);

// For whom a function is traced that so many replicas call; `strategy` is for messages.
ReplicaGroup group_of(const CallSignature& call, int replicas, const std::string& strategy);

}  // namespace cohort::coordinator
