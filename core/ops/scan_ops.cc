#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_cumsum(const InferenceContext& c) {
  require_number(c.inputs[0], "x");
  axis_attribute(c, c.inputs[0].shape);
  c.attributes.get<bool>("exclusive");
  c.attributes.get<bool>("reverse");
  return {c.inputs[0]};
}

Values cumsum_gradient(const Node& node, const Values& dys) {
  const auto& a = node.attributes();
  return {
      cumsum(dys[0], a.get<int64_t>("axis"), a.get<bool>("exclusive"), !a.get<bool>("reverse"))};
}

Specs infer_top_k(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  require_number(x, "x");
  require_min_rank(x, 1, "x");
  const int64_t k = count_attribute(c, "k"), extent = x.shape.dim(-1);
  if (k > extent)
    invalid("k is ", k, " but the last axis of ", x.shape, " has only ", extent, " elements");
  if (extent > INT32_MAX) invalid("the last axis of ", x.shape, " is too long for int32 indices");
  const Shape shape = x.shape.with_dim(x.shape.rank() - 1, k);
  return {{x.dtype, shape}, {DType::kInt32, shape}};
}

// Scatters into x laid out flat: element (row, index) is at row * extent + index.
Values top_k_gradient(const Node& node, const Values& dys) {
  const Shape& shape = node.inputs()[0].shape();
  const int64_t rows = shape.count(0, shape.rank() - 1), extent = shape.dim(-1),
                k = dys[0].shape().dim(-1);
  Tensor starts(DType::kInt64, Shape{rows, 1});
  for (int64_t i = 0; i < rows; ++i) starts.data<int64_t>()[i] = i * extent;
  const Value indices = cast(reshape(output_of(node, 1), {rows, k}), DType::kInt64);
  const Value places = indices + apply("Constant", {}, {{"value", starts}});
  return {
      reshape(scatter_add(places, reshape(dys[0], {rows, k}), rows * extent), shape.to_vector())};
}

COHORT_REGISTER_OP({.name = "CumSum",
                    .num_inputs = 1,
                    .attributes = {"axis", "exclusive", "reverse"},
                    .infer = infer_cumsum,
                    .gradient = cumsum_gradient});
COHORT_REGISTER_OP({.name = "TopK",
                    .num_inputs = 1,
                    .attributes = {"k"},
                    .infer = infer_top_k,
                    .gradient = top_k_gradient});

}  // namespace

Value cumsum(const Value& x, int64_t axis, bool exclusive, bool reverse) {
  return apply(
      "CumSum", {x},
      {{"axis", axis_of("cumsum", x, axis)}, {"exclusive", exclusive}, {"reverse", reverse}});
}

TopK top_k(const Value& x, int64_t k) {
  Node& node = apply_node("TopK", {x}, {{"k", k}});
  return {node.output(0), node.output(1)};
}

}  // namespace cohort::ops
