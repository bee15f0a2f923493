#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph.h"

// Control flow while a function runs. What a C++ `if` decides is decided when it is traced.
namespace cohort::ops {

// One side of a conditional: traces its ops on values that it captures, and returns its results.
using BranchBody = std::function<std::vector<Value>()>;

// The results of `then` where `condition`, a bool scalar, holds, else those of `otherwise`
// (tf.cond). Both are traced at once, have the same number of results, and those the same specs.
//
// Both sides are computed, and one counts: it alone gives the results, writes variables, refuses by
// ops::require and has a part in the gradients, also where the other side divides by zero. So it is
// for small computations and for effects, and does not keep an op from being given what it refuses,
// such as an index out of range. Collectives of both sides take place whatever the condition is, on
// every replica: they may stand in a branch that other replicas do not take, and what a replica
// gives to them has its part in the gradients of those that take it. A write to a variable whose
// copies are kept equal needs a condition that is the same on all replicas (is_same_on_replicas).
//
// kInvalidArgument when the condition is no bool scalar, when a side is empty, when the sides'
// results do not match, and for such a write where replicas may differ; kUnimplemented for writes
// in a branch under parameter servers, where others write, and wait for, the same variables.
std::vector<Value> cond(const Value& condition, const BranchBody& then,
                        const BranchBody& otherwise);
// The same for one result each.
Value cond(const Value& condition, const std::function<Value()>& then,
           const std::function<Value()>& otherwise);
// For effects alone: what `then` traces counts where `condition` holds.
void only_if(const Value& condition, const std::function<void()>& then);

}  // namespace cohort::ops
