#include "core/ops/state_ops.h"

#include <algorithm>

#include "core/graph/branch.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_read(const InferenceContext& c) { return {c.resource->spec()}; }

Specs infer_assign(const InferenceContext& c) {
  require_spec(c.inputs[0], c.resource->spec(), "the value");
  return {c.inputs[0]};
}

Specs infer_assign_scatter(const InferenceContext& c) {
  const int64_t op = c.attributes.get<int64_t>("op");
  if (op < 0 || op > static_cast<int64_t>(ScatterOp::kUpdate)) invalid(op, " is not a scatter op");
  c.attributes.get_or<bool>("allow_none", true);  // a bool, if anything
  const TensorSpec &variable = c.resource->spec(), &indices = c.inputs[0];
  require_number(variable, "the variable");
  require_min_rank(variable, 1, "the variable");
  require_integer(indices, "indices");
  auto dims = indices.shape.to_vector();
  dims.insert(dims.end(), variable.shape.begin() + 1, variable.shape.end());
  require_spec(c.inputs[1], {variable.dtype, Shape(dims)}, "updates");
  return {};
}

COHORT_REGISTER_OP({.name = "ReadVariable",
                    .num_inputs = 0,
                    .infer = infer_read,
                    .gradient = no_gradient,
                    .stateful = true,
                    .uses_variable = true});
COHORT_REGISTER_OP({.name = "AssignVariable",
                    .num_inputs = 1,
                    .infer = infer_assign,
                    .stateful = true,
                    .uses_variable = true});
COHORT_REGISTER_OP({.name = "AssignScatter",
                    .num_inputs = 2,
                    .attributes = {"op", "allow_none"},
                    .infer = infer_assign_scatter,
                    .stateful = true,
                    .uses_variable = true,
                    .may_fail = true});

}  // namespace

// Reads between the same writes share a node.
Value read_variable(const std::shared_ptr<Resource>& variable) {
  const auto& nodes = current_graph().nodes();
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(),
                                 [&](const auto& n) { return n->resource() == variable.get(); });
  if (last != nodes.rend() && (*last)->op().name == "ReadVariable") return (*last)->output();
  return current_graph().add("ReadVariable", {}, {}, variable).output();
}

Value assign(const std::shared_ptr<Resource>& variable, const Value& value) {
  return value.graph()
      .add("AssignVariable", {value_to_write(variable, value)}, {}, variable)
      .output();
}

void assign_scatter(const std::shared_ptr<Resource>& variable, ScatterOp op, const Value& indices,
                    const Value& updates) {
  Graph& graph = indices.graph();
  graph.add("AssignScatter", {rows_if(BranchScope::condition(graph), indices), updates},
            {{"op", static_cast<int64_t>(op)}}, variable);
}

}  // namespace cohort::ops
