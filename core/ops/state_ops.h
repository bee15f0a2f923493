#pragma once

#include "core/graph/graph.h"

// Reads and writes of resources (variables). Effects follow program order: a read sees the writes
// traced before it and none traced after it. Writes are not differentiable; they take place whether
// or not their result is used.
namespace cohort::ops {

Value read_variable(const std::shared_ptr<Resource>& variable);
// Stores `value`, whose spec must be the variable's; returns the stored value.
Value assign(const std::shared_ptr<Resource>& variable, const Value& value);
// variable[indices[i]] += updates[i] for rows of axis 0; duplicates add up. Touches those rows
// only.
void assign_scatter_add(const std::shared_ptr<Resource>& variable, const Value& indices,
                        const Value& updates);

}  // namespace cohort::ops
