#pragma once

#include <string_view>
#include <vector>

#include "core/graph/op.h"

// What the definitions of ops and their gradients share. Internal to core/ops.
namespace cohort::ops {

using Values = std::vector<Value>;

// Adds a node to the graph of its first input, or to the current graph when there is none.
Node& apply_node(std::string_view op, Values inputs, Attributes attributes = {});
// The same; returns the node's first output.
Value apply(std::string_view op, Values inputs, Attributes attributes = {});

// What gradient functions start from: output `index` of `node` as a value to compute with.
Value output_of(const Node& node, int index = 0);

// All of them.
Values outputs_of(const Node& node);

// A scalar constant of x's dtype in x's graph.
Value scalar_like(const Value& x, double value);
// Zeros of x's spec.
Value zeros_like(const Value& x);
// The gradient of a broadcast: sums `g` over the axes along which `shape` was repeated.
Value sum_to_shape(const Value& g, const Shape& shape);

}  // namespace cohort::ops
