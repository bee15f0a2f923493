#pragma once

#include "core/collective/communicator.h"
#include "core/graph/gradients.h"
#include "core/graph/graph.h"

// Communication among the replicas in sync. Every replica must trace the same calls in the same
// order; calls that differ are an error of all of them. Shapes, dtypes and extents that do not fit
// are kInvalidArgument at once.
namespace cohort::ops {

// The id of the replica that runs the function: an int64 scalar.
Value replica_id();

// Element by element over all replicas, the same bits on each. The values are reduced as one
// bucket. Sum and mean are differentiable (the gradient of a sum is the sum of the gradients,
// Horovod's rule).
std::vector<Value> all_reduce(const std::vector<Value>& values, ReduceOp op = ReduceOp::kSum);

// An all-reduce in two halves: it starts when the last of `values` has been computed and goes on
// behind whatever is computed next; the result is ready where it is first used. `when`, a bool
// scalar that is the same on every replica, says at run time whether to do it at all; without it
// the results are the values. Not differentiable.
std::vector<Value> all_reduce_async(const std::vector<Value>& values, ReduceOp op,
                                    const Value& when = {});

// The replicas' values one behind the other along axis 0; `extents` are theirs, in replica order.
// Differentiable.
Value all_gather(const Value& value, const std::vector<int64_t>& extents);
// The part that all_gather with these extents took from this replica, out of the sum of all
// replicas' values. Its gradient is all_gather. `rows` is this replica's extent.
Value reduce_scatter(const Value& value, const std::vector<int64_t>& extents, int64_t rows);
// The value of replica `root` on every replica. Not differentiable.
Value broadcast(const Value& value, int root);
// Every replica has executed all nodes before it when one executes a node after it.
void barrier();

// The same gradient with each row once: slices of one row are added up in their order, at the place
// of the first; the places of the others have index -1, which names no row, and zeros. Slices that
// are combined already stay as they are.
Gradient combine_slices(const Gradient& slices);

}  // namespace cohort::ops
