#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace cohort {

// The gradient of a scalar with respect to one value. Dense when `indices` is none; otherwise a set
// of indexed slices: row indices[i] of the gradient receives values[i], duplicates add up. Slices
// come from a Gather of whole rows (an embedding lookup), so a large table is never densified.
struct Gradient {
  Value values;      // none: the loss does not depend on it
  Value indices;     // integer [n], or none
  int64_t rows = 0;  // where sparse, the first extent of x

  explicit operator bool() const { return values.defined(); }
  bool sparse() const { return indices.defined(); }
  // The gradient as one tensor of x's shape, slices added up; none stays none.
  Value dense() const;
};

// Adds the nodes that compute d loss / d x for every x, in the graph of `loss`. Reverse mode: each
// node on a path from an x to the loss is visited once, last first. `loss` must be a floating
// scalar and in the function of every x (kInvalidArgument), and an x that is a read of a variable
// the read that the loss uses, where it uses one of the same value (likewise); an op on the way
// that has no gradient is kUnimplemented, as are the gradients of some ops (core/ops/nn_ops.h says
// which). An x given twice gets the same gradient twice. A dense gradient's node stands where the
// sweep completes it: in the order of their nodes gradients become ready, which is the same for all
// shapes.
std::vector<Gradient> gradients(const Value& loss, const std::vector<Value>& xs);

// The same for any number of values of any shape, whose gradients are given: the product of the
// vector `grad_ys` and the Jacobian of `ys`, which is sum over i of d sum(ys[i] * grad_ys[i]) / d x
// with grad_ys held constant (tf.gradients with grad_ys, jax.vjp, torch.autograd.grad with
// grad_outputs). A y that comes twice counts twice. kInvalidArgument where there is no y, a y is
// not floating, or there is not one gradient for each y, of its shape and dtype.
std::vector<Gradient> gradients(const std::vector<Value>& ys, const std::vector<Value>& xs,
                                const std::vector<Value>& grad_ys);

}  // namespace cohort
