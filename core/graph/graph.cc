#include "core/graph/graph.h"

#include <ostream>

#include "core/base/comma_separated.h"
#include "core/graph/branch.h"
#include "core/graph/op.h"
#include "core/tensor/specs_of.h"

namespace cohort {
namespace {

thread_local Graph* t_graph = nullptr;
thread_local std::string t_scope;

constexpr std::string_view kMixes =
    "mixes values of different functions; pass a value as an argument instead of capturing it";

// Sizes in bytes, and sums of them over a graph, then fit in 64 bits. Far above any memory.
constexpr int64_t kMaxElements = int64_t{1} << 40;
// What a read gives is the variable's affair: there may be no memory at all for most of it.
constexpr int64_t kMaxReadElements = int64_t{1} << 48;

void check_variable(const OpDef& op, const Resource* variable) {
  if (op.uses_variable && variable == nullptr) invalid("names no variable");
  if (!op.uses_variable && variable != nullptr)
    invalid("uses no variable, but \"", variable->name(), "\" is given");
}

void require_size(const OpDef& op, const TensorSpec& spec) {
  const int64_t most = op.name == "ReadVariable" ? kMaxReadElements : kMaxElements;
  if (spec.shape.num_elements() > most) invalid("the result ", spec, " is too large");
}

}  // namespace

Value::Value(Node* node, int index)
    : node_(node), index_(index), graph_lives_(node->graph().lives_) {}

void Value::refuse() const {
  if (!defined()) invalid("an empty value was used; it was never assigned");
  fail(Code::kFailedPrecondition,
       "a value was used after the function or rehearsal that computed it: this ", kMixes);
}

const TensorSpec& Value::spec() const { return node().outputs()[static_cast<size_t>(index_)]; }

Graph& Value::graph() const { return node().graph(); }

bool Value::is_of(const Graph& graph) const {
  return !graph_lives_.expired() && &node_->graph() == &graph;
}

Value Graph::add_input(std::string name, TensorSpec spec) {
  Attributes attributes;
  attributes.set("dtype", spec.dtype);
  attributes.set("shape", spec.shape.to_vector());
  inputs_.push_back(add_named(std::move(name), "Input", {}, std::move(attributes)).output());
  return inputs_.back();
}

Node& Graph::add(std::string_view op, std::vector<Value> inputs, Attributes attributes,
                 std::shared_ptr<Resource> resource) {
  const OpDef& def = find_op(op);
  check_attributes(def, attributes);
  const std::string& scope = NameScope::current();
  return add_named(scope.empty() ? def.name : str(scope, "/", op), def, std::move(inputs),
                   std::move(attributes), std::move(resource));
}

Node& Graph::add_named(std::string name, std::string_view op, std::vector<Value> inputs,
                       Attributes attributes, std::shared_ptr<Resource> resource) {
  return add_named(std::move(name), find_op(op), std::move(inputs), std::move(attributes),
                   std::move(resource));
}

Node& Graph::add_named(std::string name, const OpDef& op, std::vector<Value> inputs,
                       Attributes attributes, std::shared_ptr<Resource> resource) {
  for (const Value& input : inputs) {
    if (!input.defined()) invalid(name, ": op ", op.name, " was given an empty value");
    if (!input.is_of(*this)) fail(Code::kFailedPrecondition, name, ": op ", op.name, " ", kMixes);
  }
  const std::vector<TensorSpec> specs = specs_of(inputs);
  if (op.num_inputs != OpDef::kVariadic && static_cast<size_t>(op.num_inputs) != inputs.size())
    invalid(name, ": op ", op.name, " takes ", op.num_inputs, " inputs, got ", inputs.size());
  auto node = std::make_unique<Node>();
  try {
    check_variable(op, resource.get());
    node->outputs_ = op.infer({op.name, specs, attributes, resource.get()});
    for (const TensorSpec& spec : node->outputs_) require_size(op, spec);
  } catch (const Error& error) {
    throw error.with_context(str(name, ": op ", op.name, "(", comma_separated(specs), ")"));
  }
  if (!inputs.empty()) node->branch_ = BranchScope::condition(*this);
  node->id_ = static_cast<int>(nodes_.size());
  node->op_ = &op;
  node->name_ = std::move(name);
  node->inputs_ = std::move(inputs);
  node->attributes_ = std::move(attributes);
  node->resource_ = std::move(resource);
  node->graph_ = this;
  nodes_.push_back(std::move(node));
  return *nodes_.back();
}

void Graph::set_gradient(CustomGradient gradient) {
  const auto shared = std::make_shared<const CustomGradient>(std::move(gradient));
  for (const Value& output : shared->outputs) output.node().custom_gradient_ = shared;
}

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    out << '%' << node->id() << " = " << node->op().name << '(';
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const Value& v = node->inputs()[i];
      out << (i ? ", %" : "%") << v.node().id();
      if (v.index() > 0) out << '.' << v.index();
    }
    out << ") : " << comma_separated(node->outputs());
    if (node->resource() != nullptr) out << " @" << node->resource()->name();
    out << "  # " << node->name() << '\n';
  }
  return out;
}

GraphScope::GraphScope(Graph& graph) : previous_(t_graph) { t_graph = &graph; }
GraphScope::~GraphScope() { t_graph = previous_; }

bool has_current_graph() { return t_graph != nullptr; }

Graph& current_graph() {
  if (t_graph == nullptr)
    fail(Code::kFailedPrecondition,
         "no function is being traced; call this inside function(...) or strategy.run");
  return *t_graph;
}

NameScope::NameScope(std::string_view name) : previous_(t_scope) {
  t_scope = previous_.empty() ? std::string(name) : str(previous_, "/", name);
}
NameScope::~NameScope() { t_scope = previous_; }
const std::string& NameScope::current() { return t_scope; }

}  // namespace cohort
