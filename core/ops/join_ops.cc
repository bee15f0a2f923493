#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

// Concat and Split, Slice and Pad: each is the other's gradient.
namespace cohort::ops {
namespace {

using Sizes = std::vector<int64_t>;

Specs infer_concat(const InferenceContext& c) {
  if (c.inputs.empty()) invalid("there is nothing to join");
  const TensorSpec& first = c.inputs[0];
  const int axis = axis_attribute(c, first.shape);
  int64_t extent = 0;
  for (const auto& input : c.inputs) {
    require_same_dtype(first, "the first", input, "a later one");
    if (input.shape.rank() != first.shape.rank() ||
        input.shape.with_dim(axis, 0) != first.shape.with_dim(axis, 0))
      invalid("shapes ", first.shape, " and ", input.shape, " differ in more than axis ", axis);
    extent = add_extents(extent, input.shape[axis]);
  }
  return {{first.dtype, first.shape.with_dim(axis, extent)}};
}

Specs infer_split(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  const int axis = axis_attribute(c, x.shape);
  const auto& sizes = c.attributes.get<Sizes>("sizes");
  if (sizes.empty()) invalid("there are no sizes to split into");
  Specs parts;
  int64_t sum = 0;
  for (int64_t size : sizes) {
    sum = add_extents(sum, size);
    parts.push_back({x.dtype, x.shape.with_dim(axis, size)});
  }
  if (sum != x.shape[axis])
    invalid("sizes add up to ", sum, ", axis ", axis, " of ", x.shape, " to ", x.shape[axis]);
  return parts;
}

Specs infer_slice(const InferenceContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const auto begin = list_attribute(c, "begin", shape.rank(), 0),
             size = list_attribute(c, "size", shape.rank(), 0);
  for (int i = 0; i < shape.rank(); ++i)
    if (begin[i] > shape[i] || size[i] > shape[i] - begin[i])
      invalid("axis ", i, " of ", shape, " has no elements ", begin[i], " to ", begin[i], " + ",
              size[i]);
  return {{c.inputs[0].dtype, Shape(size)}};
}

Specs infer_pad(const InferenceContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const auto before = list_attribute(c, "before", shape.rank(), 0),
             after = list_attribute(c, "after", shape.rank(), 0);
  require_number_of(c.attributes.get<double>("value"), c.inputs[0].dtype);
  Sizes dims;
  for (int i = 0; i < shape.rank(); ++i)
    dims.push_back(add_extents(add_extents(before[i], shape[i]), after[i]));
  return {{c.inputs[0].dtype, Shape(dims)}};
}

Values concat_gradient(const Node& node, const Values& dys) {
  const int64_t axis = node.attributes().get<int64_t>("axis");
  Sizes sizes;
  for (const Value& input : node.inputs()) sizes.push_back(input.shape()[static_cast<int>(axis)]);
  return split(dys[0], sizes, axis);
}

Values split_gradient(const Node& node, const Values& dys) {
  Values parts = dys;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].defined()) parts[i] = zeros_like(output_of(node, static_cast<int>(i)));
  return {concat(parts, node.attributes().get<int64_t>("axis"))};
}

Values slice_gradient(const Node& node, const Values& dys) {
  const Shape& shape = node.inputs()[0].shape();
  const auto &begin = node.attributes().get<Sizes>("begin"),
             &size = node.attributes().get<Sizes>("size");
  Sizes after;
  for (int i = 0; i < shape.rank(); ++i) after.push_back(shape[i] - begin[i] - size[i]);
  return {pad(dys[0], begin, after)};
}

Values pad_gradient(const Node& node, const Values& dys) {
  return {
      slice(dys[0], node.attributes().get<Sizes>("before"), node.inputs()[0].shape().to_vector())};
}

COHORT_REGISTER_OP({.name = "Concat",
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {"axis"},
                    .infer = infer_concat,
                    .gradient = concat_gradient});
COHORT_REGISTER_OP({.name = "Split",
                    .num_inputs = 1,
                    .attributes = {"axis", "sizes"},
                    .infer = infer_split,
                    .gradient = split_gradient});
COHORT_REGISTER_OP({.name = "Slice",
                    .num_inputs = 1,
                    .attributes = {"begin", "size"},
                    .infer = infer_slice,
                    .gradient = slice_gradient});
COHORT_REGISTER_OP({.name = "Pad",
                    .num_inputs = 1,
                    .attributes = {"before", "after", "value"},
                    .infer = infer_pad,
                    .gradient = pad_gradient});

}  // namespace

Value concat(const Values& values, int64_t axis) {
  if (values.empty()) invalid(in_scope("concat"), ": there is nothing to join");
  return apply("Concat", values, {{"axis", axis_of("concat", values[0], axis)}});
}

Values split(const Value& x, const Sizes& sizes, int64_t axis) {
  return outputs_of(
      apply_node("Split", {x}, {{"sizes", sizes}, {"axis", axis_of("split", x, axis)}}));
}

Value slice(const Value& x, const Sizes& begin, const Sizes& size) {
  Sizes resolved = size;
  for (size_t i = 0; i < size.size() && i < begin.size() && i < x.shape().dims().size(); ++i)
    if (size[i] == -1) resolved[i] = std::max<int64_t>(x.shape().dims()[i] - begin[i], 0);
  return apply("Slice", {x}, {{"begin", begin}, {"size", resolved}});
}

Value pad(const Value& x, const Sizes& before, const Sizes& after, double value) {
  return apply("Pad", {x}, {{"before", before}, {"after", after}, {"value", value}});
}

}  // namespace cohort::ops
