#include "strategies/parameter_server/push_op.h"

#include "core/graph/branch.h"
#include "core/graph/op.h"
#include "core/ops/math_ops.h"

namespace cohort::parameter_server {
namespace {

constexpr const char* kSparse = "sparse";
constexpr const char* kConditional = "conditional";

void require(const TensorSpec& spec, const TensorSpec& wanted, std::string_view what) {
  if (spec != wanted) invalid(what, " must be ", wanted, ", got ", spec);
}

// The function may come from another process.
std::vector<TensorSpec> infer_push(const InferenceContext& c) {
  const TensorSpec& variable = c.resource->spec();
  const bool is_sparse = c.attributes.get<bool>(kSparse);
  const size_t wanted = size_t{4} + is_sparse + c.attributes.get<bool>(kConditional);
  if (c.inputs.size() != wanted) invalid("takes ", wanted, " inputs, got ", c.inputs.size());
  require(c.inputs[0], {DType::kFloat64, {}}, "the learning rate");
  require(c.inputs[1], {DType::kFloat64, {}}, "the number of the update");
  require(c.inputs[2], {DType::kFloat64, {}}, "the weight");
  TensorSpec gradient = variable;
  if (is_sparse) {
    if (variable.shape.rank() == 0 || !is_integer(c.inputs[4].dtype) ||
        c.inputs[4].shape.rank() != 1)
      invalid("rows of ", variable, " at ", c.inputs[4]);
    gradient.shape = variable.shape.with_dim(0, c.inputs[4].shape[0]);
  }
  require(c.inputs[3], gradient, "the gradient");
  if (c.inputs.size() == size_t{5} + is_sparse)
    require(c.inputs.back(), {DType::kBool, {}}, "the condition");
  return {};
}

COHORT_REGISTER_OP({.name = kPushOp,
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {kSparse, kConditional},
                    .infer = infer_push,
                    .stateful = true,
                    .uses_variable = true});

}  // namespace

void add_push(const std::shared_ptr<Variable>& variable, const PushInputs& inputs) {
  if (BranchScope::condition(inputs.values.graph()).defined())
    fail(Code::kUnimplemented, "a gradient is pushed to variable \"", variable->name(),
         "\" in a branch: other workers would wait for it where the branch is not taken");
  const auto or_number = [](const Value& given, double number) {
    return given.defined() ? given : ops::constant(number, DType::kFloat64);
  };
  std::vector<Value> all = {inputs.learning_rate, or_number(inputs.step, 0),
                            or_number(inputs.weight, 1), inputs.values};
  if (inputs.indices.defined()) all.push_back(inputs.indices);
  if (inputs.when.defined()) all.push_back(inputs.when);
  inputs.values.graph().add(
      kPushOp, std::move(all),
      {{kSparse, inputs.indices.defined()}, {kConditional, inputs.when.defined()}}, variable);
}

PushInputs push_inputs(const Node& node) {
  const auto& inputs = node.inputs();
  PushInputs result{
      .learning_rate = inputs[0], .step = inputs[1], .weight = inputs[2], .values = inputs[3]};
  if (node.attributes().get<bool>(kSparse)) result.indices = inputs[4];
  if (node.attributes().get<bool>(kConditional)) result.when = inputs.back();
  return result;
}

}  // namespace cohort::parameter_server
