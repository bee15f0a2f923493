#pragma once

#include "core/graph/graph.h"
#include "core/tensor/scatter_op.h"

// Reads and writes of resources (variables). Effects follow program order: a read sees the writes
// traced before it and none traced after it. Writes are not differentiable; they take place whether
// or not their result is used. Values that do not fit the variable are kInvalidArgument at once.
namespace cohort::ops {

Value read_variable(const std::shared_ptr<Resource>& variable);
// Stores `value`, whose spec must be the variable's; returns the stored value.
Value assign(const std::shared_ptr<Resource>& variable, const Value& value);

// variable[indices[i]] = variable[indices[i]] op updates[i] for rows of axis 0, in the order of i.
// Index -1 names no row; another that is out of range is kOutOfRange at run time. Touches those
// rows only.
void assign_scatter(const std::shared_ptr<Resource>& variable, ScatterOp op, const Value& indices,
                    const Value& updates);

}  // namespace cohort::ops
