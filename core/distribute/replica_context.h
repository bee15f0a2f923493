#pragma once

#include <vector>

#include "core/collective/communicator.h"
#include "core/distribute/communication_options.h"
#include "core/graph/gradients.h"

namespace cohort {

class Strategy;

// What code running as one replica may ask and do (tf.distribute.ReplicaContext): inside a function
// that is being traced for `Strategy::run`, and, with one replica, outside any scope. Every replica
// makes the same calls in the same order, because one trace serves all that have inputs of the same
// shapes, and those of others must communicate alike (kInvalidArgument). That is also why there is
// no merge_call: what it was for, looking at all replicas' values at one point, is done by these
// collectives, by a variable's aggregation, and by the update of an optimizer. Where there are
// several replicas, all of this is kFailedPrecondition in another function that is traced
// meanwhile, which they do not run.
class ReplicaContext {
 public:
  explicit ReplicaContext(Strategy& strategy) : strategy_(strategy) {}

  Strategy& strategy() const { return strategy_; }
  int num_replicas_in_sync() const;
  // An int64 scalar from 0 to num_replicas_in_sync - 1, a value of the traced function.
  Value replica_id_in_sync_group() const;

  // The sum or mean over all replicas (kInvalidArgument for other ops, and for the mean of
  // integers); the same bits on each. Differentiable: the gradient of a sum is the sum of the
  // gradients, likewise the mean. So each replica's gradient is that of what all of them have
  // computed from the result, added up. Where that is one loss, the same on all replicas, whoever
  // sums their gradients, as Optimizer::minimize does, counts it once for each: divide it by
  // num_replicas_in_sync(), or let each replica compute its share. The same holds for all_gather.
  // `options` may set bytes_per_pack: how much to reduce at a time.
  Value all_reduce(ReduceOp op, const Value& value, const CommunicationOptions& options = {}) const;
  // Of several values, which may have several dtypes; the results are in their order.
  std::vector<Value> all_reduce(ReduceOp op, const std::vector<Value>& values,
                                const CommunicationOptions& options = {}) const;
  // Sparse ones stay sparse: all replicas' slices one behind the other, with each row once. A mean
  // divides by the number of replicas. None stays none.
  Gradient all_reduce(ReduceOp op, const Gradient& value,
                      const CommunicationOptions& options = {}) const;
  std::vector<Gradient> all_reduce(ReduceOp op, const std::vector<Gradient>& values,
                                   const CommunicationOptions& options = {}) const;
  // All replicas' values one behind the other along `axis` (negative: from the end); extents along
  // it may differ, and be 0. A scalar is kInvalidArgument. Differentiable: the gradient is this
  // replica's part of the sum of the gradients; for one loss of all replicas see all_reduce.
  Value all_gather(const Value& value, int64_t axis) const;
  // Over all replicas: the sum of the extents of their values along `axis`; known while tracing.
  int64_t global_extent(const Value& value, int64_t axis = 0) const;
  // Where the rows of this replica's value begin among those of all replicas, as all_gather(value,
  // 0) puts them: an int64 scalar, a value of the traced function. For labels that number the rows
  // of all, as those of a contrastive loss do. A scalar is kInvalidArgument.
  Value first_row(const Value& value) const;

 private:
  Gradient gather_slices(ReduceOp op, const Gradient& slices) const;

  Strategy& strategy_;
};

// The context of the replica whose function is being traced; the default strategy's outside any
// scope; null in cross-replica context: inside a scope, but in no replica.
const ReplicaContext* get_replica_context();
bool in_cross_replica_context();
// Whether a scope of a strategy other than the default one is entered on this thread.
bool has_strategy();

}  // namespace cohort
