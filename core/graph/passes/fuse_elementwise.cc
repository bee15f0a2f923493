#include <algorithm>
#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/clusters.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"
#include "core/tensor/elementwise_program.h"

namespace cohort {
namespace {

// Beyond these a program's registers no longer fit the first-level cache.
constexpr size_t kMaxInstructions = 48;
constexpr size_t kMaxInputs = 24;

bool computes_as_float(DType dtype) { return is_floating(dtype) || dtype == DType::kBool; }

// Elementwise nodes whose arithmetic is floating; conversions may also read integers. A conversion
// to bool stays alone: inside a program a register keeps its number, which need not be 0 or 1.
bool is_fusible(const Node& node) {
  Scalar scalar;
  if (!scalar_from_name(node.op().name, scalar) || !computes_as_float(node.outputs()[0].dtype))
    return false;
  if (scalar == Scalar::kCopy && node.outputs()[0].dtype == DType::kBool) return false;
  for (const Value& input : node.inputs())
    if (!computes_as_float(input.dtype()) &&
        !(scalar == Scalar::kCopy && input.dtype() == DType::kInt32))
      return false;
  return true;
}

bool computes_in_double(const Node& node) {
  if (node.outputs()[0].dtype == DType::kFloat64) return true;
  for (const Value& input : node.inputs())
    if (input.dtype() == DType::kFloat64) return true;
  return false;
}

bool may_share(const Node& a, const Node& b) {
  return a.outputs()[0].shape == b.outputs()[0].shape &&
         computes_in_double(a) == computes_in_double(b);
}

std::vector<Value> external_inputs(const std::vector<Node*>& group) {
  const std::set<const Node*> inside(group.begin(), group.end());
  std::vector<Value> inputs;
  ValueSet known;
  for (const Node* node : group)
    for (const Value& input : node->inputs())
      if (inside.count(&input.node()) == 0 && known.insert(input).second) inputs.push_back(input);
  return inputs;
}

// A conversion that rounds: to 16 bits, or of float64 to less.
bool rounds(const Node& node) {
  if (node.op().name != "Cast") return false;
  const DType from = node.inputs()[0].dtype(), to = node.outputs()[0].dtype;
  return from != to && from != DType::kBool && (dtype_size(to) == 2 || from == DType::kFloat64);
}

// Whether it tells what 16 bits have made of a number: that it is infinite, or equal to another.
bool tells_rounding(const Node& node) {
  Scalar scalar;
  if (!scalar_from_name(node.op().name, scalar)) return false;
  const bool compares = scalar >= Scalar::kEqual && scalar <= Scalar::kGreaterEqual;
  return compares || scalar == Scalar::kIsFinite ||
         (scalar == Scalar::kCopy && node.outputs()[0].dtype != node.inputs()[0].dtype());
}

// Whether a member uses what another has rounded: its register would hold what was rounded away.
bool uses_rounded(const std::vector<Node*>& group) {
  const std::set<const Node*> inside(group.begin(), group.end());
  return std::any_of(group.begin(), group.end(), [&](const Node* node) {
    return std::any_of(node->inputs().begin(), node->inputs().end(), [&](const Value& input) {
      return inside.count(&input.node()) > 0 &&
             (rounds(input.node()) || (is_half(input.dtype()) && tells_rounding(*node)));
    });
  });
}

bool may_fuse(std::vector<Node*> group, const std::vector<Node*>& more) {
  group.insert(group.end(), more.begin(), more.end());
  return group.size() <= kMaxInstructions && external_inputs(group).size() <= kMaxInputs &&
         !uses_rounded(group);
}

// Puts `node` into the clusters of its producers, joining those where possible.
void cluster(Clusters& clusters, Node& node) {
  int own = -1;
  for (const Value& input : node.inputs()) {
    const int other = clusters.of(input.node());
    if (other < 0 || other == own || !may_share(node, input.node())) continue;
    if (own < 0) {
      if (may_fuse(clusters.members(other), {&node}) && clusters.try_add(other, node)) own = other;
    } else if (may_fuse(clusters.members(own), clusters.members(other))) {
      clusters.try_merge(own, other);
    }
  }
  if (own < 0) clusters.create(node);
}

// Values of the group that something outside it needs.
std::vector<Value> group_outputs(const std::vector<Node*>& group, const Users& users) {
  const std::set<const Node*> inside(group.begin(), group.end());
  std::vector<Value> outputs;
  for (Node* node : group) {
    bool needed = users.is_output(node->output());
    for (const Node* user : users.of(node->output())) needed = needed || inside.count(user) == 0;
    if (needed) outputs.push_back(node->output());
  }
  return outputs;
}

// A program computes in double where one of its inputs or outputs is float64: not so where all that
// is float64 stays inside.
bool keeps_precision(const std::vector<Node*>& group, const std::vector<Value>& outputs) {
  const auto is_double = [](const Value& value) { return value.dtype() == DType::kFloat64; };
  const std::vector<Value> inputs = external_inputs(group);
  return !computes_in_double(*group[0]) || std::any_of(inputs.begin(), inputs.end(), is_double) ||
         std::any_of(outputs.begin(), outputs.end(), is_double);
}

void emit_group(Rewriter& rewrite, const std::vector<Node*>& group,
                const std::vector<Value>& outputs) {
  const std::vector<Value> inputs = external_inputs(group);
  ElementwiseProgram program;
  program.num_inputs = static_cast<int>(inputs.size());
  ValueMap<int64_t> registers;
  for (const Value& input : inputs)
    registers.emplace(input, static_cast<int64_t>(registers.size()));
  for (Node* node : group) {
    ElementwiseProgram::Instruction instruction{};
    scalar_from_name(node->op().name, instruction.op);
    int64_t* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
    for (size_t i = 0; i < node->inputs().size(); ++i)
      *operands[i] = registers.at(node->inputs()[i]);
    program.instructions.push_back(instruction);
    registers.emplace(node->output(), static_cast<int64_t>(registers.size()));
  }
  std::vector<int64_t> dtypes;
  for (const Value& output : outputs) {
    program.outputs.push_back(registers.at(output));
    dtypes.push_back(static_cast<int64_t>(output.dtype()));
  }
  Attributes attributes;
  attributes.set("program", program.encode());
  attributes.set("shape", outputs[0].shape().to_vector());
  attributes.set("dtypes", std::move(dtypes));
  Node& fused =
      rewrite.add(*group.back(), "FusedElementwise", rewrite(inputs), std::move(attributes));
  for (size_t i = 0; i < outputs.size(); ++i)
    rewrite.map(outputs[i], fused.output(static_cast<int>(i)));
}

}  // namespace

GraphFunction fuse_elementwise(const GraphFunction& function) {
  Clusters clusters(function);
  for (const auto& node : function.graph->nodes())
    if (is_fusible(*node)) cluster(clusters, *node);
  const Users users(function);
  Rewriter rewrite(function);
  for (const auto& group : clusters.order()) {
    const auto outputs = group_outputs(group, users);
    if (group.size() == 1 || outputs.empty() || !keeps_precision(group, outputs)) {
      for (const Node* node : group) rewrite.copy(*node);
    } else {
      emit_group(rewrite, group, outputs);
    }
  }
  return rewrite.finish();
}

}  // namespace cohort
