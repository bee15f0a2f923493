#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

// One number for each row of logits.
TensorSpec row_spec(const TensorSpec& logits, DType dtype) {
  return {dtype, logits.shape.without_axis(logits.shape.rank() - 1)};
}

TensorSpec log_sum_spec(const TensorSpec& logits) {
  return row_spec(logits, statistics_dtype(logits.dtype));
}

void require_logits(const TensorSpec& logits) {
  require_floating(logits, "logits");
  require_min_rank(logits, 1, "logits");
  if (logits.shape.dim(-1) == 0) invalid("logits of shape ", logits.shape, " have no classes");
}

void require_labels(const TensorSpec& labels, const TensorSpec& logits) {
  require_integer(labels, "labels");
  const Shape rows = row_spec(logits, logits.dtype).shape;
  if (labels.shape != rows)
    invalid("labels must have shape ", rows, " for logits ", logits.shape, ", have ", labels.shape);
}

Specs infer_sparse(const InferenceContext& c) {
  require_logits(c.inputs[0]);
  require_labels(c.inputs[1], c.inputs[0]);
  return {row_spec(c.inputs[0], c.inputs[0].dtype), log_sum_spec(c.inputs[0])};
}

Specs infer_dense(const InferenceContext& c) {
  require_logits(c.inputs[0]);
  require_spec(c.inputs[1], c.inputs[0], "targets");
  return {row_spec(c.inputs[0], c.inputs[0].dtype), log_sum_spec(c.inputs[0])};
}

// The inputs that both gradients have: dloss, logits and (last) log_sum.
void require_grad_operands(const InferenceContext& c) {
  const TensorSpec& logits = c.inputs[1];
  require_logits(logits);
  require_spec(c.inputs[0], row_spec(logits, logits.dtype), "dloss");
  require_spec(c.inputs[3], log_sum_spec(logits), "log_sum");
}

Specs infer_sparse_grad(const InferenceContext& c) {
  require_grad_operands(c);
  require_labels(c.inputs[2], c.inputs[1]);
  return {c.inputs[1]};
}

Specs infer_dense_grad(const InferenceContext& c) {
  require_grad_operands(c);
  require_spec(c.inputs[2], c.inputs[1], "targets");
  return {c.inputs[1]};
}

// Of the loss, output 0, with respect to logits; log_sum is for the gradient only.
Values cross_entropy_gradient(const Node& node, const Values& dys) {
  if (!dys[0].defined()) return no_gradient(node, dys);
  return {apply(node.op().name + "Grad",
                {dys[0], node.inputs()[0], node.inputs()[1], output_of(node, 1)}),
          Value()};
}

// Of dlogits = dloss * (sum(targets) p - targets) with p = softmax(logits), given its own, `dy`.
// log_sum follows from logits: its part is theirs.
Values second_gradient(const Node& node, const Value& dy, const Value& targets) {
  const Value &dloss = node.inputs()[0], &logits = node.inputs()[1];
  const Value p = softmax(logits), total = reduce_sum(targets, {-1}, true);
  return {reduce_sum(dy * (total * p - targets), {-1}),
          expand_dims(dloss, -1) * total * apply("SoftmaxGrad", {dy, p}), Value(), Value()};
}

Values sparse_second_gradient(const Node& node, const Values& dys) {
  const TensorSpec& logits = node.outputs()[0];
  return second_gradient(node, dys[0],
                         one_hot(node.inputs()[2], logits.shape.dim(-1), logits.dtype));
}

Values dense_second_gradient(const Node& node, const Values& dys) {
  return second_gradient(node, dys[0], node.inputs()[2]);
}

COHORT_REGISTER_OP({.name = "SparseSoftmaxCrossEntropy",
                    .num_inputs = 2,
                    .infer = infer_sparse,
                    .gradient = cross_entropy_gradient,
                    .may_fail = true});
COHORT_REGISTER_OP({.name = "SoftmaxCrossEntropy",
                    .num_inputs = 2,
                    .infer = infer_dense,
                    .gradient = cross_entropy_gradient});
COHORT_REGISTER_OP({.name = "SparseSoftmaxCrossEntropyGrad",
                    .num_inputs = 4,
                    .infer = infer_sparse_grad,
                    .gradient = sparse_second_gradient,
                    .may_fail = true});
COHORT_REGISTER_OP({.name = "SoftmaxCrossEntropyGrad",
                    .num_inputs = 4,
                    .infer = infer_dense_grad,
                    .gradient = dense_second_gradient});

}  // namespace

Value sparse_softmax_cross_entropy(const Value& logits, const Value& labels) {
  return apply("SparseSoftmaxCrossEntropy", {logits, labels});
}

Value softmax_cross_entropy(const Value& logits, const Value& targets) {
  return apply("SoftmaxCrossEntropy", {logits, targets});
}

// (1 - t) softplus(x) + t softplus(-x) equals the documented form, without cancellation and with
// the right derivative at 0.
Value sigmoid_cross_entropy(const Value& logits, const Value& targets) {
  return (1.0 - targets) * softplus(logits) + targets * softplus(-logits);
}

}  // namespace cohort::ops
