#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/op.h"

// What the definitions of ops and their gradients share. Internal to core/ops.
namespace cohort::ops {

using Values = std::vector<Value>;

// Adds a node to the graph of its first input, or to the current graph when there is none.
Node& apply_node(std::string_view op, Values inputs, Attributes attributes = {});
// The same; returns the node's first output.
Value apply(std::string_view op, Values inputs, Attributes attributes = {});

// What errors start with that come before there is a node, whose name they would have: the scope,
// and the name of an op or of a function of this folder.
std::string in_scope(std::string_view name);
// What f() returns, whose errors get that in front.
template <typename F>
auto prepare(std::string_view name, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw error.with_context(in_scope(name));
  }
}
// The non-negative form of an axis of x; an error starts with in_scope(name).
int axis_of(std::string_view name, const Value& x, int64_t axis);
// The same of several, rising; all of them where none is given. One that is given twice is an
// error.
std::vector<int64_t> axes_of(std::string_view name, const Value& x,
                             const std::vector<int64_t>& axes);

// What gradient functions start from: output `index` of `node` as a value to compute with.
Value output_of(const Node& node, int index = 0);

// All of them.
Values outputs_of(const Node& node);

// A scalar constant of x's dtype in x's graph.
Value scalar_like(const Value& x, double value);
// The gradient of a broadcast: sums `g` over the axes along which `shape` was repeated.
Value sum_to_shape(const Value& g, const Shape& shape);

}  // namespace cohort::ops
