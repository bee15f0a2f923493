#include "core/runtime/trace.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "core/collective/communicator.h"
#include "core/graph/op.h"
#include "core/runtime/variable.h"

namespace cohort {
namespace {

thread_local TraceScope* t_trace = nullptr;

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether the op waits for the other replicas to do the same.
bool communicates(std::string_view op) {
  static constexpr std::array<std::string_view, 6> kOps = {
      "AllReduce", "AllReduceStart", "AllGather", "ReduceScatter", "Broadcast", "Barrier"};
  return contains(kOps, op);
}

// Whether the results of an op are the same on every replica whatever its inputs are.
bool makes_same(std::string_view op) {
  static constexpr std::array<std::string_view, 4> kOps = {"AllReduce", "AllReduceWait",
                                                           "AllGather", "Broadcast"};
  return contains(kOps, op);
}

// Ops whose results differ by replica whatever their inputs are.
bool differs_by_replica(std::string_view op) {
  static constexpr std::array<std::string_view, 6> kOps = {
      "ReplicaId", "ReduceScatter", "Dropout", "RandomUniform", "RandomNormal", "TruncatedNormal"};
  return contains(kOps, op);
}

bool same_input(const ReplicaGroup& group, const Graph& graph, const Value& input) {
  const auto at = std::find(graph.inputs().begin(), graph.inputs().end(), input);
  const auto index = static_cast<size_t>(at - graph.inputs().begin());
  return index < group.same_input.size() && group.same_input[index];
}

std::string communication_of(const Node& node) {
  std::ostringstream out;
  out << node.op().name;
  const Attributes& attributes = node.attributes();
  if (attributes.has("op"))
    out << " by " << reduce_op_name(static_cast<ReduceOp>(attributes.get<int64_t>("op")));
  for (const Value& input : node.inputs()) {
    const Shape& shape = input.shape();
    if (node.op().name == "AllGather")  // whose own rows may differ
      out << " of rows " << TensorSpec{input.dtype(), shape.without_axis(0)};
    else
      out << " of " << input.spec();
  }
  if (attributes.has("extents"))
    for (const int64_t extent : attributes.get<std::vector<int64_t>>("extents"))
      out << ", " << extent;
  if (attributes.has("root")) out << " from " << attributes.get<int64_t>("root");
  return out.str();
}

}  // namespace

std::vector<std::string> communication_of(const Graph& graph) {
  std::vector<std::string> lines;
  for (const auto& node : graph.nodes())
    if (communicates(node->op().name)) lines.push_back(communication_of(*node));
  return lines;
}

bool SignatureLess::operator()(const Signature& a, const Signature& b) const {
  const auto key = [](const TensorSpec& s) { return std::pair(s.dtype, s.shape.to_vector()); };
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(),
      [&](const TensorSpec& x, const TensorSpec& y) { return key(x) < key(y); });
}

TraceScope::TraceScope(const Graph& graph, const ReplicaGroup& group,
                       const std::map<Signature, AskedShapes, SignatureLess>& known)
    : graph_(graph), group_(group), known_(known), previous_(t_trace) {
  t_trace = this;
}

TraceScope::~TraceScope() { t_trace = previous_; }

std::vector<Shape> shapes_on_replicas(const Value& value) {
  if (t_trace == nullptr) return {value.shape()};
  const ReplicaGroup& group = t_trace->group_;
  std::vector<Shape> shapes(static_cast<size_t>(group.num_replicas), value.shape());
  if (&value.graph() != &t_trace->graph_) return shapes;
  const size_t question = t_trace->asked_.size();
  t_trace->asked_.push_back(value.shape());
  for (size_t r = 0; r < group.signatures.size(); ++r) {
    const auto known = t_trace->known_.find(group.signatures[r]);
    if (known != t_trace->known_.end() && question < known->second.size())
      shapes[r] = known->second[question];
  }
  return shapes;
}

const ReplicaGroup& traced_group() {
  static const ReplicaGroup alone;
  return t_trace == nullptr ? alone : t_trace->group_;
}

bool is_same_on_replicas(const Value& value) {
  const ReplicaGroup& group = traced_group();
  if (group.num_replicas == 1) return true;
  const Graph& graph = value.graph();
  // Inputs come before their users, so one pass over the nodes up to this one suffices.
  std::vector<bool> same(static_cast<size_t>(value.node().id()) + 1);
  for (size_t id = 0; id < same.size(); ++id) {
    Node& node = *graph.nodes()[id];
    const std::string& op = node.op().name;
    if (op == "Input") {
      same[id] = same_input(group, graph, node.output());
    } else if (op == "ReadVariable") {
      const auto* variable = dynamic_cast<const Variable*>(node.resource());
      same[id] = variable == nullptr || variable->is_same_on_replicas();
    } else if (differs_by_replica(op)) {
      same[id] = false;
    } else {
      same[id] = makes_same(op) ||
                 std::all_of(node.inputs().begin(), node.inputs().end(), [&](const Value& input) {
                   return same[static_cast<size_t>(input.node().id())];
                 });
    }
  }
  return same.back();
}

}  // namespace cohort
