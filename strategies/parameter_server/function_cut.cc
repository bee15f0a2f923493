#include "strategies/parameter_server/function_cut.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/aggregation.h"
#include "strategies/parameter_server/push_op.h"

namespace cohort::parameter_server {
namespace {

ServerVariablePtr server_variable(const Node& node) {
  return std::dynamic_pointer_cast<ServerVariable>(node.shared_resource());
}

bool is_row_lookup(const Node& node, const Value& table) {
  return node.op().name == "Gather" && node.attributes().get<int64_t>("axis") == 0 &&
         node.inputs()[0].is_same(table) && !node.inputs()[1].is_same(table);
}

// Whether a value can be computed before anything is pulled or communicated.
bool follows_from_inputs(const Graph& graph, const Value& value) {
  const std::vector<bool> needed = ancestors(graph, {value});
  for (size_t id = 0; id < needed.size(); ++id)
    if (const Node& node = *graph.nodes()[id];
        needed[id] && node.op().name != "Input" && (node.op().stateful || communicates(node)))
      return false;
  return true;
}

// Where `write`, one of the writes of its variable, adds something to what that is then: what.
std::optional<Sending::Term> added_by(const Node& write, const std::vector<const Node*>& writes) {
  if (write.op().name != "AssignVariable") return std::nullopt;
  const Node& sum = write.inputs()[0].node();
  const bool is_difference = sum.op().name == "Sub";
  if ((sum.op().name != "Add" && !is_difference) || sum.inputs().size() != 2) return std::nullopt;
  const Node& read = sum.inputs()[0].node();
  if (!is_read(read) || read.resource() != write.resource()) return std::nullopt;
  const auto is_between = [&](const Node* other) {
    return read.id() < other->id() && other->id() < write.id();
  };
  if (std::ranges::any_of(writes, is_between)) return std::nullopt;  // and is undone
  if (sum.inputs()[1].spec() != write.resource()->spec()) return std::nullopt;
  return Sending::Term{sum.inputs()[1], is_difference};
}

// The same for rows.
std::optional<Sending::Term> scattered_by(const Node& write) {
  if (write.op().name != "AssignScatter" || write.inputs()[0].shape().rank() != 1)
    return std::nullopt;
  const auto op = static_cast<ScatterOp>(write.attributes().get<int64_t>("op"));
  if (op != ScatterOp::kAdd && op != ScatterOp::kSub) return std::nullopt;
  return Sending::Term{write.inputs()[1], op == ScatterOp::kSub};
}

// Of a variable that is merged when it is read, the sum of what all have changed: what its `writes`
// make of the value that was read before them, less that value.
std::vector<Sending::Term> changed_by(const Graph& graph, const std::vector<const Node*>& writes) {
  const Node &first = *writes.front(), &last = *writes.back();
  const auto& variable = dynamic_cast<const Variable&>(*first.resource());
  if (!is_made_on_read(variable) || variable.aggregation() == Aggregation::kNone ||
      last.op().name != "AssignVariable")
    return {};
  for (const auto& node : graph.nodes())
    if (is_read(*node) && node->resource() == first.resource() && node->id() < first.id())
      return {{last.inputs()[0]}, {node->output(), true}};
  return {};
}

}  // namespace

std::vector<bool> ancestors(const Graph& graph, const std::vector<Value>& values) {
  std::vector<bool> needed(graph.nodes().size());
  for (const Value& value : values) needed[static_cast<size_t>(value.node().id())] = true;
  for (size_t id = needed.size(); id-- > 0;)
    if (needed[id])
      for (const Value& input : graph.nodes()[id]->inputs())
        needed[static_cast<size_t>(input.node().id())] = true;
  return needed;
}

FunctionCut::FunctionCut(const GraphFunction& graph) : graph_(&graph) {
  for (const auto& node : graph.graph->nodes())
    if (const auto variable = server_variable(*node)) rules_.add(variable);
  find_tables();
  std::map<ServerVariablePtr, std::vector<const Node*>> writes;
  for (const auto& node : graph.graph->nodes()) {
    if (node->op().name == kPushOp)
      add_gradient(*node);
    else if (const auto variable = server_variable(*node); variable && is_write(*node))
      writes[variable].push_back(node.get());
    if (const auto own = std::dynamic_pointer_cast<OwnVariable>(node->shared_resource())) {
      own_.insert(own);
      if (is_write(*node)) own_written_.insert(own);
    }
  }
  for (const auto& [variable, nodes] : writes) add_writes(variable, nodes);
  std::set<const ServerVariable*> sent;
  for (const Sending& sending : sendings_)
    if (!sent.insert(sending.variable.get()).second)
      invalid("variable \"", sending.variable->name(),
              "\" gets several gradients in one call, or a gradient and a sum; a step applies one "
              "optimizer to it, once");
}

void FunctionCut::find_tables() {
  const Users users(*graph_);
  std::map<ServerVariablePtr, std::vector<const Node*>> gathers;
  std::set<ServerVariablePtr> others;
  for (const auto& node : graph_->graph->nodes()) {
    const ServerVariablePtr variable = server_variable(*node);
    if (variable == nullptr || node->op().name == kPushOp) continue;
    if (!is_read(*node) || variable->has_parts() || users.is_output(node->output())) {
      others.insert(variable);
      continue;
    }
    auto& found = gathers[variable];
    for (const Node* user : users.of(node->output())) {
      if (is_row_lookup(*user, node->output()) &&
          follows_from_inputs(*graph_->graph, user->inputs()[1]))
        found.push_back(user);
      else
        others.insert(variable);
    }
  }
  for (const auto& [variable, nodes] : gathers) {
    if (others.contains(variable)) continue;
    for (const Node* gather : nodes) lookups_.push_back({tables_.size(), gather});
    if (!nodes.empty()) tables_.push_back(variable);
  }
  whole_.assign(others.begin(), others.end());
  // The order of pointers differs from process to process.
  const auto by_name = [](const auto& a, const auto& b) { return a->name() < b->name(); };
  std::ranges::sort(whole_, by_name);
}

void FunctionCut::add_gradient(const Node& node) {
  const ServerVariablePtr variable = server_variable(node);
  if (variable == nullptr)
    invalid("a gradient is pushed to variable \"", node.resource()->name(),
            "\", which is not on the parameter servers");
  const PushInputs inputs = push_inputs(node);
  sendings_.push_back({.variable = variable,
                       .terms = {{inputs.values}},
                       .indices = inputs.indices,
                       .learning_rate = inputs.learning_rate,
                       .step = inputs.step,
                       .weight = inputs.weight,
                       .when = inputs.when});
}

void FunctionCut::add_writes(const ServerVariablePtr& variable,
                             const std::vector<const Node*>& writes) {
  written_.push_back(variable);
  Sending sending{.variable = variable};
  if (variable->takes_sums()) {
    for (const Node* write : writes)
      if (const auto term = added_by(*write, writes)) sending.terms.push_back(*term);
    if (sending.terms.size() < writes.size()) sending.terms.clear();
    const auto scattered = writes.size() == 1 ? scattered_by(*writes[0]) : std::nullopt;
    if (scattered) {
      sending.terms.push_back(*scattered);
      sending.indices = writes[0]->inputs()[0];
    } else if (sending.terms.empty()) {
      sending.terms = changed_by(*graph_->graph, writes);
    }
  }
  if (sending.terms.empty())
    assigned_.push_back(variable);
  else
    sendings_.push_back(std::move(sending));
}

int64_t FunctionCut::num_lookups(size_t table) const {
  int64_t count = 0;
  for (const Lookup& lookup : lookups_)
    if (lookup.table == table) count += lookup.gather->inputs()[1].shape().num_elements();
  return count;
}

const Lookup* FunctionCut::lookup_of(const Node& node) const {
  for (const Lookup& lookup : lookups_)
    if (lookup.gather == &node) return &lookup;
  return nullptr;
}

}  // namespace cohort::parameter_server
