#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_softmax(const InferenceContext& c) {
  require_floating(c.inputs[0], "x");
  require_min_rank(c.inputs[0], 1, "x");
  return {c.inputs[0]};
}

Specs infer_softmax_grad(const InferenceContext& c) {
  require_spec(c.inputs[1], c.inputs[0], "y");
  return infer_softmax(c);
}

Value sum_last(const Value& x) { return reduce_sum(x, {-1}, true); }

// Of dx = y (dy - sum(dy y)).
Values softmax_grad_gradient(const Node& node, const Values& gs) {
  const Value &dy = node.inputs()[0], &y = node.inputs()[1], &g = gs[0];
  return {apply("SoftmaxGrad", {g, y}), g * (dy - sum_last(dy * y)) - dy * sum_last(g * y)};
}

// Of dx = dy - exp(y) sum(dy).
Values log_softmax_grad_gradient(const Node& node, const Values& gs) {
  const Value &dy = node.inputs()[0], &y = node.inputs()[1], &g = gs[0];
  const Value weighted = g * exp(y);
  return {g - sum_last(weighted), -weighted * sum_last(dy)};
}

COHORT_REGISTER_OP({.name = "Softmax",
                    .num_inputs = 1,
                    .infer = infer_softmax,
                    .gradient = [](const Node& node, const Values& dys) -> Values {
                      return {apply("SoftmaxGrad", {dys[0], output_of(node)})};
                    }});
COHORT_REGISTER_OP({.name = "LogSoftmax",
                    .num_inputs = 1,
                    .infer = infer_softmax,
                    .gradient = [](const Node& node, const Values& dys) -> Values {
                      return {apply("LogSoftmaxGrad", {dys[0], output_of(node)})};
                    }});
COHORT_REGISTER_OP({.name = "SoftmaxGrad",
                    .num_inputs = 2,
                    .infer = infer_softmax_grad,
                    .gradient = softmax_grad_gradient});
COHORT_REGISTER_OP({.name = "LogSoftmaxGrad",
                    .num_inputs = 2,
                    .infer = infer_softmax_grad,
                    .gradient = log_softmax_grad_gradient});

}  // namespace

Value softmax(const Value& x) { return apply("Softmax", {x}); }
Value log_softmax(const Value& x) { return apply("LogSoftmax", {x}); }

Value softmax(const Value& x, int64_t axis) {
  const int along = axis_of("softmax", x, axis);
  return move_axis(softmax(move_axis(x, along, -1)), -1, along);
}
Value log_softmax(const Value& x, int64_t axis) {
  const int along = axis_of("log_softmax", x, axis);
  return move_axis(log_softmax(move_axis(x, along, -1)), -1, along);
}

}  // namespace cohort::ops
