#pragma once

#include "core/graph/gradients.h"
#include "core/runtime/variable.h"

namespace cohort::parameter_server {

// The op by which a traced function says that a gradient goes to a server variable when the
// function has run. It has no kernel: ServerFunction takes it out of what runs. Travels with the
// function.
inline constexpr const char* kPushOp = "PushGradient";

// What such a node has.
struct PushInputs {
  Value learning_rate;  // float64 scalar
  Value step;           // float64 scalar, as RemoteUpdates::push has it; none: not said
  Value weight;         // likewise; none: 1
  Value values;         // of the variable's spec, or rows of it
  Value indices;        // of these rows, -1 for none; none: dense
  Value when;           // bool scalar; none: always
};

// kUnimplemented in a branch (ops::cond).
void add_push(const std::shared_ptr<Variable>& variable, const PushInputs& inputs);
PushInputs push_inputs(const Node& node);

}  // namespace cohort::parameter_server
