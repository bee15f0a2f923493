#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_scan(const InferenceContext& c) {
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

// For each element the products that it is in, without it: what they are with it, divided by it, up
// to the first zero of its line. That one has those of the line with 1 in its place; what comes
// behind it has the same, divided by itself, times the zero, which has a derivative of its own.
Values cumprod_gradient(const Node& node, const Values& dys) {
  const auto& a = node.attributes();
  const int64_t axis = a.get<int64_t>("axis");
  const bool exclusive = a.get<bool>("exclusive"), reverse = a.get<bool>("reverse");
  const DType dtype = dys[0].dtype(), wide = statistics_dtype(dtype);
  const Value x = cast(node.inputs()[0], wide), dy = cast(dys[0], wide);
  const Value zero = scalar_like(x, 0), one = scalar_like(x, 1);
  const auto so_far = [&](const Value& v) { return cumsum(v, axis, false, reverse); };
  const auto products_with = [&](const Value& v) {
    return cumsum(dy * cumprod(v, axis, exclusive, reverse), axis, exclusive, !reverse);
  };
  const Value is_zero = equal(x, zero), nonzero = where(is_zero, one, x);
  const Value zeros = so_far(cast(is_zero, DType::kInt64));
  const Value is_first = logical_and(is_zero, equal(zeros, scalar_like(zeros, 1)));
  const Value of_first = products_with(where(is_first, one, x));
  const Value behind = so_far(where(is_first, x, zero)) * of_first / nonzero;
  const Value before = products_with(x) / nonzero;
  const Value dx =
      where(equal(zeros, scalar_like(zeros, 0)), before, where(is_first, of_first, behind));
  return {cast(dx, dtype)};
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
                    .infer = infer_scan,
                    .gradient = cumsum_gradient});
COHORT_REGISTER_OP({.name = "CumProd",
                    .num_inputs = 1,
                    .attributes = {"axis", "exclusive", "reverse"},
                    .infer = infer_scan,
                    .gradient = cumprod_gradient});
COHORT_REGISTER_OP({.name = "TopK",
                    .num_inputs = 1,
                    .attributes = {"k"},
                    .infer = infer_top_k,
                    .gradient = top_k_gradient});

Value scan(const char* op, const char* name, const Value& x, int64_t axis, bool exclusive,
           bool reverse) {
  return apply(op, {x},
               {{"axis", axis_of(name, x, axis)}, {"exclusive", exclusive}, {"reverse", reverse}});
}

}  // namespace

Value cumsum(const Value& x, int64_t axis, bool exclusive, bool reverse) {
  return scan("CumSum", "cumsum", x, axis, exclusive, reverse);
}

Value cumprod(const Value& x, int64_t axis, bool exclusive, bool reverse) {
  return scan("CumProd", "cumprod", x, axis, exclusive, reverse);
}

TopK top_k(const Value& x, int64_t k) {
  Node& node = apply_node("TopK", {x}, {{"k", k}});
  return {node.output(0), node.output(1)};
}

}  // namespace cohort::ops
