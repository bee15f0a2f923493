#include "core/graph/passes/rewriter.h"

#include <algorithm>
#include <set>

#include "core/graph/op.h"
#include "core/tensor/elementwise_program.h"

namespace cohort {

void Rewriter::map(const Value& old, const Value& replacement) {
  COHORT_CHECK(old.is_of(*source_.graph));
  auto& outputs = values_[static_cast<size_t>(old.node().id())];
  outputs.resize(old.node().outputs().size());
  outputs[static_cast<size_t>(old.index())] = replacement;
}

Value Rewriter::operator()(const Value& old) const {
  COHORT_CHECK(old.is_of(*source_.graph));
  const auto& outputs = values_[static_cast<size_t>(old.node().id())];
  COHORT_CHECK(!outputs.empty() && outputs[static_cast<size_t>(old.index())].defined());
  return outputs[static_cast<size_t>(old.index())];
}

std::vector<Value> Rewriter::operator()(const std::vector<Value>& old) const {
  std::vector<Value> mapped;
  for (const Value& v : old) mapped.push_back((*this)(v));
  return mapped;
}

Node& Rewriter::copy(const Node& node, Attributes attributes) {
  if (node.op().name == "Input") {
    const Value input = graph().add_input(node.name(), node.outputs()[0]);
    map(Value(const_cast<Node*>(&node), 0), input);
    return input.node();
  }
  Node& added = graph().add_named(node.name(), node.op(), (*this)(node.inputs()),
                                  std::move(attributes), node.shared_resource());
  for (size_t i = 0; i < added.outputs().size(); ++i)
    map(Value(const_cast<Node*>(&node), static_cast<int>(i)), added.output(static_cast<int>(i)));
  return added;
}

Node& Rewriter::add(const Node& origin, std::string_view op, std::vector<Value> inputs,
                    Attributes attributes) {
  return graph().add_named(origin.name(), op, std::move(inputs), std::move(attributes));
}

GraphFunction Rewriter::finish() {
  result_.outputs = (*this)(source_.outputs);
  return std::move(result_);
}

Users::Users(const GraphFunction& function)
    : outputs_(function.outputs.begin(), function.outputs.end()) {
  for (const auto& node : function.graph->nodes())
    for (const Value& input : node->inputs()) {
      auto& users = users_[input];
      if (users.empty() || users.back() != node.get()) users.push_back(node.get());
    }
}

const std::vector<Node*>& Users::of(const Value& value) const {
  static const std::vector<Node*> none;
  const auto it = users_.find(value);
  return it == users_.end() ? none : it->second;
}

std::vector<Node*> Users::of_memory(const Value& value) const {
  std::vector<Node*> found, stack;
  const auto push_users = [&](const Value& shared) {
    const auto& users = of(shared);
    stack.insert(stack.end(), users.rbegin(), users.rend());
  };
  push_users(value);
  while (!stack.empty()) {
    found.push_back(stack.back());
    stack.pop_back();
    if (is_alias(*found.back())) push_users(found.back()->output());
  }
  return found;
}

Node* Users::only_user(const Value& value) const {
  const auto& users = of(value);
  return users.size() == 1 && !is_output(value) ? users[0] : nullptr;
}

bool is_write(const Node& node) { return node.resource() != nullptr && !is_read(node); }
bool is_read(const Node& node) { return node.op().name == "ReadVariable"; }
bool is_alias(const Node& node) {
  const std::string& op = node.op().name;
  return op == "Reshape" || op == "Identity" || op == "StopGradient" || op == "CustomGradient";
}

const Node& origin(const Value& value) {
  const Node* node = &value.node();
  while (is_alias(*node)) node = &node->inputs()[0].node();
  return *node;
}

bool is_light(const Node& node) {
  Scalar scalar;
  return is_alias(node) || is_read(node) || node.op().name == "Constant" ||
         scalar_from_name(node.op().name, scalar);
}
bool is_start(const Node& node) { return node.op().name == "AllReduceStart"; }
bool is_wait(const Node& node) { return node.op().name == "AllReduceWait"; }
std::map<const Node*, int> number_starts(const GraphFunction& function) {
  std::map<const Node*, int> numbers;
  for (const auto& node : function.graph->nodes())
    if (is_start(*node)) numbers.try_emplace(node.get(), static_cast<int>(numbers.size()));
  return numbers;
}
bool is_barrier(const Node& node) { return node.op().name == "Barrier"; }
bool communicates(const Node& node) {
  static const std::set<std::string> ops = {"AllReduce", "AllReduceStart", "AllReduceWait",
                                            "AllGather", "ReduceScatter",  "Broadcast",
                                            "Barrier"};
  return ops.count(node.op().name) > 0;
}
bool meets_others(const Node& node) { return communicates(node) && !is_wait(node); }
bool is_meeting(const Node& node) {
  if (is_wait(node)) return !node.inputs()[0].node().attributes().get<bool>("conditional");
  return communicates(node) && !is_start(node);
}

const Node* first_meeting(const Graph& graph) {
  const auto& nodes = graph.nodes();
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [](const auto& node) { return is_meeting(*node); });
  return found == nodes.end() ? nullptr : found->get();
}

std::vector<bool> find_live(const GraphFunction& function,
                            const std::function<bool(const Node&)>& dropped) {
  const auto& nodes = function.graph->nodes();
  std::vector<bool> live(nodes.size(), false);
  for (const Value& v : function.outputs) live[static_cast<size_t>(v.node().id())] = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = *nodes[i];
    // Inputs stay so that feeds keep their numbers; reads have no effect of their own.
    const bool has_effect = node.op().stateful && !is_read(node) && !(dropped && dropped(node));
    if (has_effect || node.op().name == "Input") live[i] = true;
    if (!live[i]) continue;
    for (const Value& input : node.inputs()) live[static_cast<size_t>(input.node().id())] = true;
  }
  return live;
}

namespace {

// By id: whether a node reads or writes the memory of a resource.
std::vector<bool> find_touching(const GraphFunction& function) {
  std::vector<bool> touching, is_memory;  // is_memory: whether its value is that of a resource
  for (const auto& node : function.graph->nodes()) {
    const auto& inputs = node->inputs();
    const bool uses = std::any_of(inputs.begin(), inputs.end(), [&](const Value& input) {
      return is_memory[static_cast<size_t>(input.node().id())];
    });
    touching.push_back(node->resource() != nullptr || uses);
    is_memory.push_back(is_read(*node) || (is_alias(*node) && uses));
  }
  return touching;
}

// Adds the edges that keep each Barrier between what touches resources before and after it.
void add_barriers(const GraphFunction& function, std::vector<std::vector<const Node*>>& before) {
  const auto touching = find_touching(function);
  const Node* last = nullptr;
  std::vector<const Node*> since;  // what touches a resource after the last Barrier
  for (const auto& node : function.graph->nodes()) {
    const auto id = static_cast<size_t>(node->id());
    if (is_barrier(*node)) {
      before[id].insert(before[id].end(), since.begin(), since.end());
      if (last != nullptr) before[id].push_back(last);
      since.clear();
      last = node.get();
    } else if (touching[id]) {
      since.push_back(node.get());
      if (node->resource() != nullptr && last != nullptr) before[id].push_back(last);
    }
  }
}

// Adds the edges that keep writes behind the first meeting before them.
void add_meeting(const GraphFunction& function, std::vector<std::vector<const Node*>>& before) {
  const Node* first = first_meeting(*function.graph);
  if (!first) return;
  for (const auto& node : function.graph->nodes())
    if (is_write(*node) && node->id() > first->id())
      before[static_cast<size_t>(node->id())].push_back(first);
}

}  // namespace

std::vector<std::vector<const Node*>> local_predecessors(const GraphFunction& function) {
  const auto& nodes = function.graph->nodes();
  const Users users(function);
  std::vector<std::vector<const Node*>> before(nodes.size());
  std::map<const Resource*, std::vector<Node*>> reads;
  std::map<const Resource*, const Node*> last_write;
  for (const auto& node : nodes) {
    auto& list = before[static_cast<size_t>(node->id())];
    for (const Value& input : node->inputs()) list.push_back(&input.node());
    if (node->resource() == nullptr) continue;
    if (const auto it = last_write.find(node->resource()); it != last_write.end())
      list.push_back(it->second);
    if (is_read(*node)) {
      reads[node->resource()].push_back(node.get());
      continue;
    }
    for (Node* read : reads[node->resource()]) {
      const std::vector<Node*> readers = users.of_memory(read->output());
      list.insert(list.end(), readers.begin(), readers.end());
      list.push_back(read);
    }
    std::erase_if(list, [&](const Node* user) { return user->id() >= node->id(); });
    reads[node->resource()].clear();
    last_write[node->resource()] = node.get();
  }
  add_barriers(function, before);
  add_meeting(function, before);
  return before;
}

std::vector<std::vector<const Node*>> predecessors(const GraphFunction& function) {
  auto before = local_predecessors(function);
  const Node* last = nullptr;
  for (const auto& node : function.graph->nodes()) {
    if (!communicates(*node)) continue;
    if (last != nullptr) before[static_cast<size_t>(node->id())].push_back(last);
    last = node.get();
  }
  return before;
}

}  // namespace cohort
