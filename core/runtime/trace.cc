#include "core/runtime/trace.h"

#include <algorithm>
#include <sstream>

#include "core/collective/communicator.h"
#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/variable.h"

namespace cohort {
namespace {

thread_local TraceScope* t_trace = nullptr;

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

// A variable whose copies the node keeps equal, or null.
const Variable* written_together(const Node& node) {
  if (!is_write(node)) return nullptr;
  const auto* variable = dynamic_cast<const Variable*>(node.resource());
  return variable != nullptr && variable->is_same_on_replicas() ? variable : nullptr;
}

}  // namespace

std::vector<std::string> common_effects(const Graph& graph) {
  std::vector<std::string> lines;
  for (const auto& node : graph.nodes()) {
    if (meets_others(*node))
      lines.push_back(communication_of(*node));
    else if (const Variable* variable = written_together(*node))
      lines.push_back(str(node->op().name, " to \"", variable->name(), "\""));
  }
  return lines;
}

std::string difference_of_effects(std::string_view name_a, const std::vector<std::string>& a,
                                  std::string_view name_b, const std::vector<std::string>& b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (x == a.end() && y == b.end()) return "";
  // What a Barrier is for, the write behind it tells.
  const auto shown = [](auto at, const auto& all) -> std::string {
    if (at == all.end()) return "nothing";
    return *at == "Barrier" && at + 1 != all.end() ? *at + ", then " + *(at + 1) : *at;
  };
  return str("as number ", x - a.begin() + 1, " ", name_a, " does ", shown(x, a), " and ", name_b,
             " ", shown(y, b));
}

bool SignatureLess::operator()(const Signature& a, const Signature& b) const {
  const auto key = [](const TensorSpec& s) { return std::pair(s.dtype, s.shape.to_vector()); };
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(),
      [&](const TensorSpec& x, const TensorSpec& y) { return key(x) < key(y); });
}

TraceScope::TraceScope(const Graph& graph, const ReplicaGroup& group, const Known& known)
    : graph_(graph), group_(group), known_(known), computations_(graph, group), previous_(t_trace) {
  t_trace = this;
}

TraceScope::~TraceScope() { t_trace = previous_; }

std::vector<Question> TraceScope::ask(const Question& own) {
  std::vector<Question> all(static_cast<size_t>(group_.num_replicas), own);
  const size_t number = asked_.size();
  asked_.push_back(own);
  for (size_t r = 0; r < group_.signatures.size(); ++r) {
    const auto known = known_.find(group_.signatures[r]);
    if (known != known_.end() && number < known->second.size()) all[r] = known->second[number];
  }
  return all;
}

bool TraceScope::is_of(const Value& value) {
  return t_trace != nullptr && &value.graph() == &t_trace->graph_;
}

bool is_tracing_function() { return t_trace != nullptr; }

std::vector<Shape> shapes_on_replicas(const Value& value) {
  if (!TraceScope::is_of(value))
    return std::vector(static_cast<size_t>(traced_group().num_replicas), value.shape());
  std::vector<Shape> shapes;
  for (const Question& question : t_trace->ask({.shape = value.shape()}))
    shapes.push_back(question.shape);
  return shapes;
}

const ReplicaGroup& traced_group() {
  static const ReplicaGroup alone;
  return t_trace == nullptr ? alone : t_trace->group_;
}

bool is_same_on_replicas(const Value& value) {
  const ReplicaGroup& group = traced_group();
  if (group.num_replicas == 1) return true;
  if (!TraceScope::is_of(value)) return Computations(value.graph(), group).of(value) != 0;
  const uint64_t own = t_trace->computations_.of(value);
  // Also where all have one signature: the trace must not serve those who would answer otherwise.
  const auto all = t_trace->ask({.computation = own});
  return std::all_of(all.begin(), all.end(), [&](const Question& question) {
    return question.computation != 0 && question.computation == own;
  });
}

}  // namespace cohort
