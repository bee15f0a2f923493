#include <algorithm>

#include "core/ops/array_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

using Dims = std::vector<int64_t>;

Specs infer_gather(const InferenceContext& c) {
  const TensorSpec &params = c.inputs[0], &indices = c.inputs[1];
  require_integer(indices, "indices");
  const int axis = axis_attribute(c, params.shape);
  c.attributes.get_or<bool>("allow_none", false);  // a bool, if anything
  Dims dims = params.shape.to_vector();
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, indices.shape.begin(), indices.shape.end());
  return {{params.dtype, Shape(dims)}};
}

Specs infer_scatter_add(const InferenceContext& c) {
  const TensorSpec &indices = c.inputs[0], &updates = c.inputs[1];
  require_integer(indices, "indices");
  require_number(updates, "updates");
  const int rank = indices.shape.rank();
  if (updates.shape.rank() < rank ||
      !std::equal(indices.shape.begin(), indices.shape.end(), updates.shape.begin()))
    invalid("updates of shape ", updates.shape, " do not start with the shape of indices, ",
            indices.shape);
  Dims dims(updates.shape.begin() + rank, updates.shape.end());
  dims.insert(dims.begin(), count_attribute(c, "rows"));
  return {{updates.dtype, Shape(dims)}};
}

Specs infer_one_hot(const InferenceContext& c) {
  require_integer(c.inputs[0], "indices");
  Dims dims = c.inputs[0].shape.to_vector();
  dims.push_back(count_attribute(c, "depth"));
  return {{c.attributes.get<DType>("dtype"), Shape(dims)}};
}

// Moves the `count` axes from `axis` on to the front.
Value axes_to_front(const Value& x, int64_t axis, int64_t count) {
  Dims perm;
  for (int64_t i = 0; i < x.shape().rank(); ++i) perm.push_back(i);
  std::rotate(perm.begin(), perm.begin() + axis, perm.begin() + axis + count);
  return transpose(x, perm);
}

// Moves the first axis to be axis `axis`.
Value front_to_axis(const Value& x, int64_t axis) {
  Dims perm;
  for (int64_t i = 0; i < x.shape().rank(); ++i) perm.push_back(i);
  std::rotate(perm.begin(), perm.begin() + 1, perm.begin() + axis + 1);
  return transpose(x, perm);
}

Values gather_gradient(const Node& node, const Values& dys) {
  const Shape& params = node.inputs()[0].shape();
  const Value& indices = node.inputs()[1];
  const int64_t axis = node.attributes().get<int64_t>("axis"),
                rows = params[static_cast<int>(axis)];
  if (axis == 0) return {scatter_add(indices, dys[0], rows), Value()};
  const Value dy = axes_to_front(dys[0], axis, indices.shape().rank());
  return {front_to_axis(scatter_add(indices, dy, rows), axis), Value()};
}

COHORT_REGISTER_OP({.name = "Gather",
                    .num_inputs = 2,
                    .attributes = {"axis", "allow_none"},
                    .infer = infer_gather,
                    .gradient = gather_gradient,
                    .may_fail = true});
COHORT_REGISTER_OP({.name = "ScatterAdd",
                    .num_inputs = 2,
                    .attributes = {"rows"},
                    .infer = infer_scatter_add,
                    .gradient = [](const Node& node, const Values& dys) -> Values {
                      return {Value(), gather_rows_or_zero(dys[0], node.inputs()[0])};
                    },
                    .may_fail = true});
COHORT_REGISTER_OP({.name = "OneHot",
                    .num_inputs = 1,
                    .attributes = {"depth", "dtype"},
                    .infer = infer_one_hot,
                    .gradient = no_gradient});

}  // namespace

Value gather(const Value& params, const Value& indices, int64_t axis) {
  return apply("Gather", {params, indices}, {{"axis", axis_of("gather", params, axis)}});
}

Value gather_rows_or_zero(const Value& params, const Value& indices) {
  return apply("Gather", {params, indices}, {{"axis", int64_t{0}}, {"allow_none", true}});
}

Value scatter_add(const Value& indices, const Value& updates, int64_t rows) {
  return apply("ScatterAdd", {indices, updates}, {{"rows", rows}});
}

Value one_hot(const Value& indices, int64_t depth, DType dtype) {
  return apply("OneHot", {indices}, {{"depth", depth}, {"dtype", dtype}});
}

}  // namespace cohort::ops
