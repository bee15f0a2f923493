#pragma once

#include "core/distribute/replica_scope.h"
#include "tests/distribute/testing.h"
#include "tests/optim/testing.h"

namespace cohort::testing {

// What a replica of `strategy` traces of `function`.
inline const GraphFunction& trace_in(Strategy& strategy, const Function& function,
                                     const Signature& signature) {
  const ReplicaScope inside(strategy);
  ReplicaGroup group;
  group.num_replicas = strategy.num_replicas_in_sync();
  return function.trace(signature, group);
}

// With a bucket for each gradient.
inline MirroredStrategy::Options in_buckets_of_one(MirroredStrategy::Options options) {
  options.communication.bytes_per_pack = 1;
  return options;
}

// "a", "b" and "c", of one element each.
inline std::vector<VariablePtr> make_three_weights() {
  return {make_weight("a", {1}), make_weight("b", {1}), make_weight("c", {1})};
}

// A step whose loss is the product of its input and the weights, so that their gradients are
// complete one after the other.
inline Function step_along_product(const optim::Optimizer& optimizer,
                                   const std::vector<VariablePtr>& weights) {
  return Function([=](const std::vector<Value>& in) {
    Value x = in[0];
    for (const VariablePtr& w : weights) x = x * w->read();
    optimizer.minimize(ops::reduce_sum(x), weights);
    return std::vector<Value>{};
  });
}

}  // namespace cohort::testing
