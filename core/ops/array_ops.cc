#include "core/ops/array_ops.h"

#include <algorithm>
#include <numeric>

#include "core/graph/branch.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_like_input(const InferenceContext& c) { return {c.inputs[0]}; }

Specs infer_require(const InferenceContext& c) {
  require_spec(c.inputs[1], {DType::kBool, {}}, "the condition");
  c.attributes.get<std::string>("message");
  return {c.inputs[0]};
}

Specs infer_reshape(const InferenceContext& c) {
  const Shape shape = shape_attribute(c);
  const Shape& from = c.inputs[0].shape;
  if (shape.num_elements() != from.num_elements())
    invalid(from, " has ", from.num_elements(), " elements, ", shape, " has ",
            shape.num_elements());
  return {{c.inputs[0].dtype, shape}};
}

Specs infer_broadcast_to(const InferenceContext& c) {
  const Shape shape = shape_attribute(c);
  if (broadcast_shapes(c.inputs[0].shape, shape) != shape)
    invalid(c.inputs[0].shape, " does not broadcast to ", shape);
  return {{c.inputs[0].dtype, shape}};
}

Specs infer_transpose(const InferenceContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const auto perm = list_attribute(c, "perm", shape.rank(), 0);
  for (int64_t axis = 0; axis < shape.rank(); ++axis)
    if (std::count(perm.begin(), perm.end(), axis) != 1)
      invalid("perm must name each axis of ", shape, " once");
  std::vector<int64_t> dims;
  for (int64_t axis : perm) dims.push_back(shape[static_cast<int>(axis)]);
  return {{c.inputs[0].dtype, Shape(dims)}};
}

Values reshape_gradient(const Node& node, const Values& dys) {
  return {reshape(dys[0], node.inputs()[0].shape().to_vector())};
}

Values transpose_gradient(const Node& node, const Values& dys) {
  const auto& perm = node.attributes().get<std::vector<int64_t>>("perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return {transpose(dys[0], inverse)};
}

COHORT_REGISTER_OP({.name = "Identity",
                    .num_inputs = 1,
                    .infer = infer_like_input,
                    .gradient = [](const Node&, const Values& dys) { return dys; }});
COHORT_REGISTER_OP(
    {.name = "StopGradient", .num_inputs = 1, .infer = infer_like_input, .gradient = no_gradient});
COHORT_REGISTER_OP({.name = "Require",
                    .num_inputs = 2,
                    .attributes = {"message"},
                    .infer = infer_require,
                    .gradient = [](const Node&, const Values& dys) -> Values {
                      return {dys[0], Value()};
                    },
                    .may_fail = true});
COHORT_REGISTER_OP({.name = "Reshape",
                    .num_inputs = 1,
                    .attributes = {"shape"},
                    .infer = infer_reshape,
                    .gradient = reshape_gradient});
COHORT_REGISTER_OP({.name = "BroadcastTo",
                    .num_inputs = 1,
                    .attributes = {"shape"},
                    .infer = infer_broadcast_to,
                    .gradient = [](const Node& node, const Values& dys) -> Values {
                      return {sum_to_shape(dys[0], node.inputs()[0].shape())};
                    }});
COHORT_REGISTER_OP({.name = "Transpose",
                    .num_inputs = 1,
                    .attributes = {"perm"},
                    .infer = infer_transpose,
                    .gradient = transpose_gradient});

// `dims` with its one -1 replaced by what the other extents leave of `shape`.
std::vector<int64_t> resolve_dims(const Shape& shape, std::vector<int64_t> dims) {
  const auto open = std::find(dims.begin(), dims.end(), -1);
  if (open == dims.end()) return dims;
  if (std::find(open + 1, dims.end(), -1) != dims.end()) invalid("only one extent may be -1");
  *open = 1;
  const Shape known(dims);
  // The extents in front that stay say nothing about it, and may be 0: a replica's share of a batch
  // may have no rows.
  const auto changed = std::mismatch(dims.begin(), open, shape.begin(), shape.end()).first;
  const int first = static_cast<int>(changed - dims.begin());
  const int64_t left = shape.count(first, shape.rank()), others = known.count(first, known.rank());
  if (others == 0 || left % others != 0)
    invalid("the ", shape.num_elements(), " elements of ", shape, " do not divide into rows of ",
            known.num_elements());
  *open = left / others;
  return dims;
}

}  // namespace

Value identity(const Value& x) { return apply("Identity", {x}); }
Value stop_gradient(const Value& x) { return apply("StopGradient", {x}); }

Value require(const Value& x, const Value& condition, const std::string& message) {
  const Value branch = BranchScope::condition(x.graph());
  const Value holds = branch.defined() ? logical_or(condition, logical_not(branch)) : condition;
  return apply("Require", {x, holds}, {{"message", message}});
}

Value reshape(const Value& x, const std::vector<int64_t>& dims) {
  const auto shape = prepare("reshape", [&] { return resolve_dims(x.shape(), dims); });
  return shape == x.shape().to_vector() ? x : apply("Reshape", {x}, {{"shape", shape}});
}

Value flatten_from(const Value& x, int axis) {
  const Shape& shape = x.shape();
  const int first = shape.rank() == 0 && axis == 0 ? 0 : axis_of("flatten_from", x, axis);
  std::vector<int64_t> dims(shape.begin(), shape.begin() + first);
  dims.push_back(shape.count(first, shape.rank()));
  return reshape(x, dims);
}

Value expand_dims(const Value& x, int64_t axis) {
  return reshape(
      x, prepare("expand_dims", [&] { return x.shape().with_inserted(axis, 1).to_vector(); }));
}

Value squeeze(const Value& x, int64_t axis) {
  if (x.shape()[axis_of("squeeze", x, axis)] != 1)
    invalid(in_scope("squeeze"), ": axis ", axis, " of ", x.shape(), " is not 1 long");
  return reshape(x, x.shape().without_axis(axis).to_vector());
}

Value broadcast_to(const Value& x, const Shape& shape) {
  return x.shape() == shape ? x : apply("BroadcastTo", {x}, {{"shape", shape.to_vector()}});
}

Value transpose(const Value& x, const std::vector<int64_t>& perm) {
  std::vector<int64_t> normalised;
  for (int64_t axis : perm) normalised.push_back(axis_of("transpose", x, axis));
  if (perm.empty()) {
    normalised.resize(x.shape().rank());
    std::iota(normalised.rbegin(), normalised.rend(), 0);
  }
  return apply("Transpose", {x}, {{"perm", normalised}});
}

Value sequence_mask(const Value& lengths, int64_t length) {
  return prepare("sequence_mask", [&] {
    require_integer(lengths.spec(), "lengths");
    if (length < 0) invalid("the length must not be negative, got ", length);
    const GraphScope scope(lengths.graph());
    return less(arange(0, static_cast<double>(length)),
                expand_dims(cast(lengths, DType::kInt64), -1));
  });
}

}  // namespace cohort::ops
