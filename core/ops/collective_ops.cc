#include "core/ops/collective_ops.h"

#include <algorithm>
#include <numeric>

#include "core/graph/indices.h"
#include "core/ops/array_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

void check_reduction(const std::vector<TensorSpec>& values, const Attributes& attributes) {
  if (values.empty()) invalid("there is nothing to reduce");
  const int64_t op = attributes.get<int64_t>("op");
  if (!is_reduce_op(static_cast<ReduceOp>(op))) invalid(op, " is not a reduce op");
  for (const auto& value : values) {
    require_number(value, "values");
    if (op == static_cast<int64_t>(ReduceOp::kMean)) require_floating(value, "values of a mean");
    if (is_bitwise(static_cast<ReduceOp>(op))) require_integer(value, "values of a bitwise op");
  }
}

Specs infer_all_reduce(const InferenceContext& c) {
  check_reduction(c.inputs, c.attributes);
  return c.inputs;
}

Values all_reduce_gradient(const Node& node, const Values& dys) {
  const auto op = static_cast<ReduceOp>(node.attributes().get<int64_t>("op"));
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    fail(Code::kUnimplemented, node.name(), ": only an all-reduce of sum or mean has a gradient");
  Values inputs = dys;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined()) inputs[i] = zeros_like(output_of(node, static_cast<int>(i)));
  return all_reduce(inputs, op);
}

// The last input of a conditional start says whether.
Specs infer_start(const InferenceContext& c) {
  Specs values = c.inputs;
  if (c.attributes.get<bool>("conditional")) {
    if (values.empty()) invalid("there is nothing to reduce");
    require_spec(values.back(), {DType::kBool, {}}, "the condition");
    values.pop_back();
  }
  check_reduction(values, c.attributes);
  values.push_back({DType::kInt64, {}});  // identifies the operation to the wait
  return values;
}

Specs infer_wait(const InferenceContext& c) {
  if (c.inputs.empty()) invalid("there is nothing to wait for");
  Specs values = c.inputs;
  require_spec(values.back(), {DType::kInt64, {}}, "the operation");
  values.pop_back();
  return values;
}

// The extents of all replicas, which are not negative.
std::vector<int64_t> extents_of(const Attributes& attributes) {
  auto extents = attributes.get<std::vector<int64_t>>("extents");
  if (extents.empty()) invalid("there are no extents");
  for (const int64_t extent : extents)
    if (extent < 0) invalid("an extent is negative: ", extent);
  return extents;
}

int64_t total(const std::vector<int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{0}, add_extents);
}

Specs infer_all_gather(const InferenceContext& c) {
  require_min_rank(c.inputs[0], 1, "the value");
  const auto extents = extents_of(c.attributes);
  return {{c.inputs[0].dtype, c.inputs[0].shape.with_dim(0, total(extents))}};
}

Values all_gather_gradient(const Node& node, const Values& dys) {
  if (!dys[0].defined()) return {Value()};
  return {reduce_scatter(dys[0], extents_of(node.attributes()), node.inputs()[0].shape()[0])};
}

Specs infer_reduce_scatter(const InferenceContext& c) {
  const TensorSpec& value = c.inputs[0];
  require_min_rank(value, 1, "the value");
  require_number(value, "the value");
  const auto extents = extents_of(c.attributes);
  const int64_t rows = c.attributes.get<int64_t>("rows");
  if (value.shape[0] != total(extents))
    invalid("the value has ", value.shape[0], " rows, the extents add up to ", total(extents));
  if (std::find(extents.begin(), extents.end(), rows) == extents.end())
    invalid("no replica has ", rows, " rows");
  return {{value.dtype, value.shape.with_dim(0, rows)}};
}

Values reduce_scatter_gradient(const Node& node, const Values& dys) {
  if (!dys[0].defined()) return {Value()};
  return {all_gather(dys[0], extents_of(node.attributes()))};
}

Specs infer_broadcast(const InferenceContext& c) {
  if (c.attributes.get<int64_t>("root") < 0) invalid("the root must not be negative");
  return {c.inputs[0]};
}

Specs infer_combine_slices(const InferenceContext& c) {
  require_integer(c.inputs[0], "indices");
  require_number(c.inputs[1], "values");
  require_min_rank(c.inputs[1], 1, "values");
  if (c.inputs[0].dtype == DType::kUInt8) invalid("indices must have a sign, to name no row");
  if (c.inputs[0].shape != Shape{c.inputs[1].shape[0]})
    invalid("there must be one index a row of values");
  return c.inputs;
}

COHORT_REGISTER_OP({.name = "ReplicaId",
                    .num_inputs = 0,
                    .infer =
                        [](const InferenceContext&) {
                          return Specs{{DType::kInt64, {}}};
                        },
                    .gradient = no_gradient});
COHORT_REGISTER_OP({.name = "AllReduce",
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {"op"},
                    .infer = infer_all_reduce,
                    .gradient = all_reduce_gradient,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "AllReduceStart",
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {"op", "conditional"},
                    .infer = infer_start,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "AllReduceWait",
                    .num_inputs = OpDef::kVariadic,
                    .infer = infer_wait,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "AllGather",
                    .num_inputs = 1,
                    .attributes = {"extents"},
                    .infer = infer_all_gather,
                    .gradient = all_gather_gradient,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "ReduceScatter",
                    .num_inputs = 1,
                    .attributes = {"extents", "rows"},
                    .infer = infer_reduce_scatter,
                    .gradient = reduce_scatter_gradient,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "Broadcast",
                    .num_inputs = 1,
                    .attributes = {"root"},
                    .infer = infer_broadcast,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "Barrier",
                    .num_inputs = 0,
                    .infer = [](const InferenceContext&) { return Specs{}; },
                    .stateful = true});
COHORT_REGISTER_OP({.name = "CombineSlices", .num_inputs = 2, .infer = infer_combine_slices});

}  // namespace

Value replica_id() { return apply("ReplicaId", {}); }

Values all_reduce(const Values& values, ReduceOp op) {
  return outputs_of(apply_node("AllReduce", values, {{"op", static_cast<int64_t>(op)}}));
}

Values all_reduce_async(const Values& values, ReduceOp op, const Value& when) {
  Values inputs = values;
  if (when.defined()) inputs.push_back(when);
  const Node& start =
      apply_node("AllReduceStart", inputs,
                 {{"op", static_cast<int64_t>(op)}, {"conditional", when.defined()}});
  return outputs_of(apply_node("AllReduceWait", outputs_of(start)));
}

Value all_gather(const Value& value, const std::vector<int64_t>& extents) {
  return apply("AllGather", {value}, {{"extents", extents}});
}

Value reduce_scatter(const Value& value, const std::vector<int64_t>& extents, int64_t rows) {
  return apply("ReduceScatter", {value}, {{"extents", extents}, {"rows", rows}});
}

Value broadcast(const Value& value, int root) {
  return apply("Broadcast", {value}, {{"root", static_cast<int64_t>(root)}});
}

void barrier() { apply_node("Barrier", {}); }

Gradient combine_slices(const Gradient& slices) {
  if (!slices.sparse() || slices.indices.node().op().name == "CombineSlices") return slices;
  Gradient combined = slices;
  const Node& node = apply_node("CombineSlices", {with_sign(slices.indices), slices.values});
  combined.indices = output_of(node, 0);
  combined.values = output_of(node, 1);
  return combined;
}

}  // namespace cohort::ops
