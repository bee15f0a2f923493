#include <algorithm>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

using Axes = std::vector<int64_t>;

// `shape` after its `axes` were reduced to extents of 1, or removed.
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keep_dims) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!reduced || keep_dims) dims.push_back(reduced ? 1 : shape[i]);
  }
  return Shape(dims);
}

Specs infer_reduce(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  require_number(x, "x");
  if (c.op == "ReduceMean") require_floating(x, "x");
  const auto& axes = c.attributes.get<Axes>("axes");
  if (axes.empty() && x.shape.rank() > 0) invalid("there is no axis to reduce");
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] < 0 || axes[i] >= x.shape.rank() || (i > 0 && axes[i] <= axes[i - 1]))
      invalid("axes must be rising axes of ", x.shape);
  return {{x.dtype, reduced_shape(x.shape, axes, c.attributes.get<bool>("keep_dims"))}};
}

Specs infer_argmax(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  require_number(x, "x");
  const int axis = axis_attribute(c, x.shape);
  if (x.shape[axis] == 0)
    invalid("axis ", axis, " of ", x.shape, " is empty: it has no largest element");
  return {{DType::kInt64, x.shape.without_axis(axis)}};
}

// The output (or its gradient) of a reduction with the reduced axes kept, so that it broadcasts
// against x.
Value with_kept_axes(const Node& node, const Value& y) {
  const auto& axes = node.attributes().get<Axes>("axes");
  return reshape(y, reduced_shape(node.inputs()[0].shape(), axes, true).to_vector());
}

Values sum_gradient(const Node& node, const Values& dys) {
  return {broadcast_to(with_kept_axes(node, dys[0]), node.inputs()[0].shape())};
}

// Counts are of at least float32: float16 ends at 65504.
Values mean_gradient(const Node& node, const Values& dys) {
  const Shape& shape = node.inputs()[0].shape();
  const DType dtype = dys[0].dtype();
  double count = 1;
  for (int64_t axis : node.attributes().get<Axes>("axes"))
    count *= static_cast<double>(shape[axis]);
  const Value share = cast(cast(dys[0], statistics_dtype(dtype)) / count, dtype);
  return {broadcast_to(with_kept_axes(node, share), shape)};
}

Values extreme_gradient(const Node& node, const Values& dys) {
  const Value& x = node.inputs()[0];
  const DType wide = statistics_dtype(x.dtype());
  const Value chosen = cast(equal(x, with_kept_axes(node, output_of(node))), wide);
  const Value ties = reduce_sum(chosen, node.attributes().get<Axes>("axes"), true);
  return {cast(chosen * (cast(with_kept_axes(node, dys[0]), wide) / ties), x.dtype())};
}

// The product of the others: of those that are not zero, times the one that is, which has a
// derivative of its own; 0 where more are. Products are of at least float32: beyond a 16-bit number
// the product of all may be where those of the others are not.
Values prod_gradient(const Node& node, const Values& dys) {
  const DType dtype = dys[0].dtype(), wide = statistics_dtype(dtype);
  const Value x = cast(node.inputs()[0], wide);
  const auto& axes = node.attributes().get<Axes>("axes");
  const auto sum_of_others = [&](const Value& v) { return reduce_sum(v, axes, true) - v; };
  const Value zero = scalar_like(x, 0), one = scalar_like(x, 1);
  const Value is_zero = equal(x, zero);
  const Value zeros = sum_of_others(cast(is_zero, wide));
  const Value only_zero = where(equal(zeros, one), sum_of_others(where(is_zero, x, zero)), zero);
  const Value nonzero = where(is_zero, one, x);
  const Value others = reduce_prod(nonzero, axes, true) / nonzero;
  const Value derivatives = others * where(equal(zeros, zero), one, only_zero);
  return {cast(cast(with_kept_axes(node, dys[0]), wide) * derivatives, dtype)};
}

COHORT_REGISTER_OP({.name = "ReduceSum",
                    .num_inputs = 1,
                    .attributes = {"axes", "keep_dims"},
                    .infer = infer_reduce,
                    .gradient = sum_gradient});
COHORT_REGISTER_OP({.name = "ReduceMean",
                    .num_inputs = 1,
                    .attributes = {"axes", "keep_dims"},
                    .infer = infer_reduce,
                    .gradient = mean_gradient});
COHORT_REGISTER_OP({.name = "ReduceMax",
                    .num_inputs = 1,
                    .attributes = {"axes", "keep_dims"},
                    .infer = infer_reduce,
                    .gradient = extreme_gradient});
COHORT_REGISTER_OP({.name = "ReduceMin",
                    .num_inputs = 1,
                    .attributes = {"axes", "keep_dims"},
                    .infer = infer_reduce,
                    .gradient = extreme_gradient});
COHORT_REGISTER_OP({.name = "ReduceProd",
                    .num_inputs = 1,
                    .attributes = {"axes", "keep_dims"},
                    .infer = infer_reduce,
                    .gradient = prod_gradient});
COHORT_REGISTER_OP({.name = "ArgMax",
                    .num_inputs = 1,
                    .attributes = {"axis"},
                    .infer = infer_argmax,
                    .gradient = no_gradient});

Value reduce(std::string_view op, const Value& x, const Axes& axes, bool keep_dims) {
  return apply(op, {x}, {{"axes", axes_of(op, x, axes)}, {"keep_dims", keep_dims}});
}

}  // namespace

Value reduce_sum(const Value& x, const Axes& axes, bool keep_dims) {
  return reduce("ReduceSum", x, axes, keep_dims);
}
Value reduce_mean(const Value& x, const Axes& axes, bool keep_dims) {
  return reduce("ReduceMean", x, axes, keep_dims);
}
Value reduce_max(const Value& x, const Axes& axes, bool keep_dims) {
  return reduce("ReduceMax", x, axes, keep_dims);
}
Value reduce_min(const Value& x, const Axes& axes, bool keep_dims) {
  return reduce("ReduceMin", x, axes, keep_dims);
}
Value reduce_prod(const Value& x, const Axes& axes, bool keep_dims) {
  return reduce("ReduceProd", x, axes, keep_dims);
}

Value argmax(const Value& x, int64_t axis) {
  return apply("ArgMax", {x}, {{"axis", axis_of("argmax", x, axis)}});
}

}  // namespace cohort::ops
