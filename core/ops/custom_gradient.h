#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph.h"

namespace cohort::ops {

// The gradients of `inputs`, one for each and of its spec, or none (a Value() without anything)
// where no gradient flows to it; from the gradients of `outputs`, which are zeros for an output
// that what is differentiated does not depend on.
using GradientBody = std::function<std::vector<Value>(const std::vector<Value>& output_gradients,
                                                      const std::vector<Value>& inputs,
                                                      const std::vector<Value>& outputs)>;

// What `forward` gives for the inputs, with a gradient of one's own (tf.custom_gradient,
// jax.custom_vjp): `gradient` is called whenever gradients through the results are taken, and adds
// the nodes that compute it. It need not be linear: it may clip what comes in.
//
// All that gets a gradient is an input: none flows to what `forward` captures, such as a variable
// that it reads. Higher derivatives are those of the nodes that `gradient` adds; the outputs that
// it is given have the gradient that it gives, too, so that it may not differentiate them, but may
// what `forward` gives for the inputs once more. Neither body is kept in bytes: a function that was
// imported has the gradients that were taken before it was serialised, and others through these
// results are kUnimplemented.
//
// kInvalidArgument where there are no inputs, or `forward` gives no values; and, when gradients are
// taken, where `gradient` does not give what it has to.
std::vector<Value> with_gradient(
    const std::vector<Value>& inputs,
    const std::function<std::vector<Value>(const std::vector<Value>&)>& forward,
    const GradientBody& gradient);
// The same for one input and one output: `gradient` is called with (output gradient, x, y).
Value with_gradient(
    const Value& x, const std::function<Value(const Value&)>& forward,
    const std::function<Value(const Value& dy, const Value& x, const Value& y)>& gradient);

}  // namespace cohort::ops
