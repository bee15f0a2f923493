#include "core/runtime/computation.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/variable.h"

namespace cohort {
namespace {

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Ops whose results differ by replica whatever their inputs are.
bool differs_by_replica(std::string_view op) {
  static constexpr std::array<std::string_view, 6> kOps = {
      "ReplicaId", "ReduceScatter", "Dropout", "RandomUniform", "RandomNormal", "TruncatedNormal"};
  return contains(kOps, op);
}

// Whether the results are the same on every replica whatever the inputs are.
bool makes_same(const Node& node) {
  static constexpr std::array<std::string_view, 3> kOps = {"AllReduce", "AllGather", "Broadcast"};
  const std::string& op = node.op().name;
  // With a condition, the results may be the inputs.
  if (op == "AllReduceStart") return !node.attributes().get<bool>("conditional");
  return contains(kOps, op);
}

bool is_same_input(const ReplicaGroup& group, size_t number) {
  return number < group.same_input.size() && group.same_input[number];
}

uint64_t hash_of(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }

class AttributePrinter {
 public:
  explicit AttributePrinter(std::ostream& out) : out_(out) {}

  template <typename T>
  void operator()(const T& value) const {
    out_ << value;
  }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) out_ << value << ' ';
  }
  void operator()(const Tensor& value) const {
    out_ << value.spec() << ' '
         << hash_of({static_cast<const char*>(value.raw()), static_cast<size_t>(value.bytes())});
  }

 private:
  std::ostream& out_;
};

// Follows a graph node by node.
class Follower {
 public:
  Follower(const Graph& graph, const ReplicaGroup& group) : graph_(graph), group_(group) {}

  void follow(const Node& node) {
    numbers_.push_back(number_of(node));
    if (meets_others(node)) ++calls_;
    if (is_write(node)) ++writes_[node.resource()];
  }
  uint64_t number() const { return numbers_.back(); }

 private:
  uint64_t number_of(const Node& node) const {
    if (!is_same(node)) return 0;
    // 1 is as good as any, and 0 is taken.
    return group_.signatures.empty() ? 1 : std::max<uint64_t>(hash_of(text_of(node)), 1);
  }

  bool is_same(const Node& node) const {
    const std::string& op = node.op().name;
    if (op == "Input") return is_same_input(group_, input_number(node));
    if (op == "ReadVariable") {
      const auto* variable = dynamic_cast<const Variable*>(node.resource());
      return variable == nullptr || variable->is_same_on_replicas();
    }
    if (differs_by_replica(op)) return false;
    if (op == "CustomGradient") return of(node.inputs()[0]) != 0;
    return makes_same(node) || std::all_of(node.inputs().begin(), node.inputs().end(),
                                           [&](const Value& input) { return of(input) != 0; });
  }

  // Equal for equal computations only. Calls of all replicas meet in their order, and a variable's
  // value is that of the last write to it.
  std::string text_of(const Node& node) const {
    std::ostringstream out;
    out << node.op().name << std::hexfloat;
    if (makes_same(node)) {
      out << " number " << calls_;
      return out.str();
    }
    if (node.op().name == "Input") out << " number " << input_number(node);
    if (const Resource* resource = node.resource()) {
      const auto writes = writes_.find(resource);
      out << " of " << resource << " after " << (writes == writes_.end() ? 0 : writes->second);
    }
    for (const auto& [name, value] : node.attributes()) {
      out << ' ' << name << '=' << value.index() << ':';
      std::visit(AttributePrinter(out), value);
    }
    for (const Value& input : node.inputs()) out << ' ' << of(input) << ':' << input.index();
    return out.str();
  }

  size_t input_number(const Node& node) const {
    const auto& inputs = graph_.inputs();
    const auto at = std::find_if(inputs.begin(), inputs.end(),
                                 [&](const Value& input) { return &input.node() == &node; });
    return static_cast<size_t>(at - inputs.begin());
  }

  uint64_t of(const Value& value) const { return numbers_[static_cast<size_t>(value.node().id())]; }

  const Graph& graph_;
  const ReplicaGroup& group_;
  std::vector<uint64_t> numbers_;          // by node
  int64_t calls_ = 0;                      // that communicate
  std::map<const Resource*, int> writes_;  // so far
};

}  // namespace

uint64_t computation_of(const Value& value, const ReplicaGroup& group) {
  const Graph& graph = value.graph();
  Follower follower(graph, group);
  // Inputs come before their users, so one pass over the nodes up to this one suffices.
  for (int id = 0; id <= value.node().id(); ++id)
    follower.follow(*graph.nodes()[static_cast<size_t>(id)]);
  return follower.number() == 0 ? 0 : follower.number() + static_cast<uint64_t>(value.index());
}

}  // namespace cohort
