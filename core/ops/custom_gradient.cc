#include "core/ops/custom_gradient.h"

#include <utility>

#include "core/ops/array_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

Specs infer_custom_gradient(const InferenceContext& c) {
  if (c.inputs.empty()) invalid("takes a value");
  return {c.inputs[0]};
}

// Its nodes are given a gradient where they are traced.
[[noreturn]] Values refuse_gradient(const Node& node, const Values&) {
  fail(Code::kUnimplemented, node.name(),
       ": a gradient that was given to with_gradient is not saved with a function; take gradients "
       "before it is serialised");
}

COHORT_REGISTER_OP({.name = "CustomGradient",
                    .num_inputs = OpDef::kVariadic,
                    .infer = infer_custom_gradient,
                    .gradient = refuse_gradient});

void check_gradients(const Values& gradients, const Values& inputs) {
  if (gradients.size() != inputs.size())
    invalid("the gradient body gave ", gradients.size(), " gradients for ", inputs.size(),
            " inputs");
  for (size_t i = 0; i < inputs.size(); ++i)
    if (gradients[i].defined())
      require_spec(gradients[i].spec(), inputs[i].spec(), str("the gradient of input ", i));
}

// Sets a flag while alive.
class Entered {
 public:
  explicit Entered(bool& flag) : flag_(flag) { flag_ = true; }
  ~Entered() { flag_ = false; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  bool& flag_;
};

// Calls the user's body.
class CheckedGradient {
 public:
  CheckedGradient(Values inputs, Values outputs, GradientBody body)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)), body_(std::move(body)) {}

  Values operator()(const Values& output_gradients) {
    return prepare("with_gradient", [&] {
      if (running_)
        invalid(
            "the gradient body takes gradients of the outputs, which are what it is to give; take "
            "those of what forward gives for the inputs once more");
      const Entered entered(running_);
      Values gradients = body_(with_zeros(output_gradients), inputs_, outputs_);
      check_gradients(gradients, inputs_);
      return gradients;
    });
  }

 private:
  Values with_zeros(Values gradients) const {
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = zeros_like(outputs_[i]);
    return gradients;
  }

  Values inputs_, outputs_;
  GradientBody body_;
  bool running_ = false;
};

// The results under a node each, which has a gradient for the inputs.
Values mark(const Values& results, const Values& inputs) {
  Values outputs;
  for (const Value& result : results) {
    Values all = {result};
    all.insert(all.end(), inputs.begin(), inputs.end());
    outputs.push_back(apply_node("CustomGradient", std::move(all)).output());
  }
  return outputs;
}

}  // namespace

Values with_gradient(const Values& inputs, const std::function<Values(const Values&)>& forward,
                     const GradientBody& gradient) {
  const std::string name = in_scope("with_gradient");
  if (!forward || !gradient) invalid(name, ": a body is an empty std::function");
  if (inputs.empty()) invalid(name, ": there is no input");
  const Values results = forward(inputs);
  if (results.empty()) invalid(name, ": forward gave no values");
  const Values outputs = mark(results, inputs);
  Graph::set_gradient({inputs, outputs, CheckedGradient(inputs, outputs, gradient)});
  return outputs;
}

Value with_gradient(
    const Value& x, const std::function<Value(const Value&)>& forward,
    const std::function<Value(const Value& dy, const Value& x, const Value& y)>& gradient) {
  if (!forward || !gradient)
    invalid(in_scope("with_gradient"), ": a body is an empty std::function");
  return with_gradient(
      {x}, [&](const Values& inputs) { return Values{forward(inputs[0])}; },
      [gradient](const Values& dys, const Values& inputs, const Values& outputs) {
        return Values{gradient(dys[0], inputs[0], outputs[0])};
      })[0];
}

}  // namespace cohort::ops
