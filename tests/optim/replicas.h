#pragma once

#include "core/distribute/replica_scope.h"
#include "tests/distribute/testing.h"
#include "tests/optim/testing.h"

namespace cohort::testing {

// The graph of `function` as a replica of `strategy` traces it.
inline const Graph& trace_in(Strategy& strategy, const Function& function,
                             const Signature& signature) {
  const ReplicaScope inside(strategy);
  ReplicaGroup group;
  group.num_replicas = strategy.num_replicas_in_sync();
  return *function.trace(signature, group).graph;
}

}  // namespace cohort::testing
