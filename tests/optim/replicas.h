#pragma once

#include "core/distribute/replica_scope.h"
#include "strategies/mirrored_strategy.h"
#include "tests/optim/testing.h"

namespace cohort::testing {

constexpr int kMaxReplicas = 7;

// Tests with a parameter: the number of replicas, each on a CPU device of its own.
class ReplicasTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kMaxReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  static MirroredStrategy::Options first_cpus(int count) {
    MirroredStrategy::Options options;
    for (int i = 0; i < count; ++i) options.devices.push_back(str("cpu:", i));
    return options;
  }
};

// The graph of `function` as a replica of `strategy` traces it.
inline const Graph& trace_in(Strategy& strategy, const Function& function,
                             const Signature& signature) {
  const ReplicaScope inside(strategy);
  ReplicaGroup group;
  group.num_replicas = strategy.num_replicas_in_sync();
  return *function.trace(signature, group).graph;
}

}  // namespace cohort::testing
