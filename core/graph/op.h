#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace cohort {

// What shape inference sees of a node that is about to be added.
struct InferenceContext {
  std::string_view op;
  const std::vector<TensorSpec>& inputs;
  const Attributes& attributes;
  const Resource* resource = nullptr;  // null but for ops that use a variable
};

// Returns the specs of the outputs. Throws kInvalidArgument that says what about the inputs or
// attributes is wrong; Graph::add puts the node's name, the op and all input specs in front.
using InferFunction = std::function<std::vector<TensorSpec>(const InferenceContext&)>;

// Adds the nodes that compute the gradients of `node`'s inputs from those of its outputs. An output
// that the loss does not depend on has no gradient (a none Value), and neither may an input get
// one. The result has one entry per input.
using GradientFunction =
    std::function<std::vector<Value>(const Node& node, const std::vector<Value>& output_gradients)>;

// A none gradient for each input: the op's result does not change smoothly with them.
std::vector<Value> no_gradient(const Node& node, const std::vector<Value>& output_gradients);

// The definition of an op: everything but its kernels.
struct OpDef {
  static constexpr int kVariadic = -1;

  std::string name;
  int num_inputs = 0;  // or kVariadic
  // The names of those that its nodes may have where they are traced or imported; `infer` checks
  // them all. Passes give some nodes others, which kernels trust (core/graph/passes/passes.h).
  std::vector<std::string> attributes = {};
  InferFunction infer;
  GradientFunction gradient;  // empty: asking for a gradient through it is kUnimplemented
  // Has an effect or differs from call to call: never folded, merged with an equal node, or dropped
  // when its results are unused, which no replica takes for the same as those of others.
  bool stateful = false;
  // Reads or writes a variable: its nodes name one, which Graph::add checks, and those of no other
  // op do. A plan takes the variable's memory for the output of whatever else names one.
  bool uses_variable = false;
  // Its kernel may find an error in what it is given, such as an index out of range: before it has
  // written anything, and an assignment that was traced behind it has had no effect then.
  bool may_fail = false;
};

// kNotFound naming the op when it is not registered.
const OpDef& find_op(std::string_view name);

// kInvalidArgument naming the op for an attribute that it does not list.
void check_attributes(const OpDef& op, const Attributes& attributes);

// Registers an op; a second definition of a name is a bug (kInternal).
struct OpRegistration {
  explicit OpRegistration(OpDef def);
};

}  // namespace cohort

#define COHORT_OP_CONCAT_(a, b) a##b
#define COHORT_OP_CONCAT(a, b) COHORT_OP_CONCAT_(a, b)
// COHORT_REGISTER_OP({.name = "Relu", .num_inputs = 1, .infer = ..., .gradient = ...});
#define COHORT_REGISTER_OP(...)                                            \
  static const ::cohort::OpRegistration COHORT_OP_CONCAT(op_registration_, \
                                                         __COUNTER__)(::cohort::OpDef __VA_ARGS__)
