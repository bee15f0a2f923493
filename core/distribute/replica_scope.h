#pragma once

#include "core/distribute/strategy.h"

namespace cohort {

// While alive, this thread is in replica context of `strategy`, in its scope: what a function that
// is traced for the strategy's replicas sees. Refuses what Strategy::scope refuses.
class ReplicaScope {
 public:
  explicit ReplicaScope(Strategy& strategy);
  ~ReplicaScope();
  ReplicaScope(const ReplicaScope&) = delete;
  ReplicaScope& operator=(const ReplicaScope&) = delete;

 private:
  Strategy::Scope scope_;
  const ReplicaContext context_;
  const ReplicaContext* previous_;
};

}  // namespace cohort
