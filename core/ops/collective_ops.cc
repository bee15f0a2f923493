#include "core/ops/collective_ops.h"

#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_all_reduce(const InferenceContext& c) {
  if (c.inputs.empty()) invalid("there is nothing to reduce");
  const int64_t op = c.attributes.get<int64_t>("op");
  if (op < 0 || op > static_cast<int64_t>(ReduceOp::kProduct)) invalid(op, " is not a reduce op");
  for (const auto& input : c.inputs) {
    require_number(input, "values");
    if (op == static_cast<int64_t>(ReduceOp::kMean)) require_floating(input, "values of a mean");
  }
  return c.inputs;
}

Values all_reduce_gradient(const Node& node, const Values& dys) {
  const auto op = static_cast<ReduceOp>(node.attributes().get<int64_t>("op"));
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    fail(Code::kUnimplemented, node.name(), ": only an all-reduce of sum or mean has a gradient");
  Values inputs = dys;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i]) inputs[i] = zeros_like(output_of(node, static_cast<int>(i)));
  return all_reduce(inputs, op);
}

COHORT_REGISTER_OP({.name = "AllReduce",
                    .num_inputs = OpDef::kVariadic,
                    .infer = infer_all_reduce,
                    .gradient = all_reduce_gradient,
                    .stateful = true});

}  // namespace

Values all_reduce(const Values& values, ReduceOp op) {
  return outputs_of(apply_node("AllReduce", values, {{"op", static_cast<int64_t>(op)}}));
}

}  // namespace cohort::ops
