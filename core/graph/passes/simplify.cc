#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

// Folding must not replace a small graph by a large constant, nor by many.
constexpr size_t kMaxFoldedBytes = 1 << 20, kMaxFoldedTotal = 64 << 20;

const Tensor* constant_of(const Value& value) {
  if (value.node().op().name != "Constant") return nullptr;
  return &value.node().attributes().get<Tensor>("value");
}

bool is_scalar_constant(const Value& value, double number) {
  const Tensor* constant = constant_of(value);
  return constant != nullptr && constant->num_elements() == 1 && constant->item() == number;
}

class Simplifier {
 public:
  Simplifier(const GraphFunction& source, const Evaluator& evaluate)
      : source_(source), evaluate_(evaluate), rewrite_(source) {}

  GraphFunction run() {
    const auto live = find_live(source_);
    for (const auto& node : source_.graph->nodes())
      if (live[static_cast<size_t>(node->id())]) visit(*node);
    return rewrite_.finish();
  }

 private:
  void visit(Node& node) {
    if (is_write(node)) ++writes_[node.resource()];
    if (is_barrier(node)) ++barriers_;
    if (const auto same = identity_of(node)) return rewrite_.map(node.output(), *same);
    if (fold(node)) return;
    if (node.op().stateful && !is_read(node)) {
      rewrite_.copy(node);
      // What was assigned keeps its value even if the variable is written again.
      if (node.op().name == "AssignVariable")
        rewrite_.map(node.output(), rewrite_(node.inputs()[0]));
      return;
    }
    const auto [equal, is_new] = seen_.try_emplace(key(node), nullptr);
    if (is_new) {
      Node& copy = rewrite_.copy(node);
      if (is_read(copy) || (is_alias(copy) && uses_memory(copy.inputs()))) memory_.insert(&copy);
      equal->second = &copy;
      return;
    }
    for (size_t i = 0; i < node.outputs().size(); ++i)
      rewrite_.map(node.output(static_cast<int>(i)), equal->second->output(static_cast<int>(i)));
  }

  // The new value that `node` merely repeats, if it does.
  std::optional<Value> identity_of(const Node& node) const {
    const std::string& op = node.op().name;
    if (op == "Identity" || op == "StopGradient" || op == "CustomGradient")
      return rewrite_(node.inputs()[0]);
    if ((op == "Cast" || op == "Reshape") && node.inputs()[0].spec() == node.outputs()[0])
      return rewrite_(node.inputs()[0]);
    if (op == "Add" || op == "Mul") {
      const double neutral = op == "Add" ? 0 : 1;
      for (int i : {0, 1}) {
        const Value kept = rewrite_(node.inputs()[static_cast<size_t>(i)]);
        const Value other = rewrite_(node.inputs()[static_cast<size_t>(1 - i)]);
        if (is_scalar_constant(other, neutral) && kept.spec() == node.outputs()[0]) return kept;
      }
    }
    if ((op == "Sub" && is_scalar_constant(rewrite_(node.inputs()[1]), 0)) ||
        (op == "Div" && is_scalar_constant(rewrite_(node.inputs()[1]), 1))) {
      const Value kept = rewrite_(node.inputs()[0]);
      if (kept.spec() == node.outputs()[0]) return kept;
    }
    return std::nullopt;
  }

  bool fold(Node& node) {
    if (node.op().stateful || node.inputs().empty()) return false;
    std::vector<Tensor> constants;
    for (const Value& input : node.inputs()) {
      const Tensor* constant = constant_of(rewrite_(input));
      if (constant == nullptr) return false;
      constants.push_back(*constant);
    }
    size_t bytes = 0;
    for (const TensorSpec& spec : node.outputs()) {
      if (spec.bytes() > kMaxFoldedBytes) return false;
      bytes += spec.bytes();
    }
    if (bytes > kMaxFoldedTotal - folded_bytes_) return false;
    folded_bytes_ += bytes;
    const auto results = evaluate_(node, constants);
    for (size_t i = 0; i < results.size(); ++i) {
      Attributes attributes;
      attributes.set("value", results[i]);
      rewrite_.map(node.output(static_cast<int>(i)),
                   rewrite_.add(node, "Constant", {}, std::move(attributes)).output());
    }
    return true;
  }

  // Nodes are equal when these are. Reads of a variable are equal between the same writes; what
  // uses its memory between the same Barriers: behind another one it may be another replica that
  // writes it.
  using Places = std::vector<std::pair<int, int>>;  // by node and output
  using Key = std::tuple<std::string, Places, Attributes, const Resource*, int, int>;
  Key key(const Node& node) {
    const std::vector<Value> inputs = rewrite_(node.inputs());
    const int barriers = uses_memory(inputs) ? barriers_ : 0;
    Places places;
    for (const Value& input : inputs) places.emplace_back(input.node().id(), input.index());
    return {node.op().name,
            std::move(places),
            node.attributes(),
            node.resource(),
            node.resource() != nullptr ? writes_[node.resource()] : 0,
            barriers};
  }

  // Whether one of these new values is the memory of a variable.
  bool uses_memory(const std::vector<Value>& values) const {
    return std::any_of(values.begin(), values.end(),
                       [&](const Value& value) { return memory_.count(&value.node()) > 0; });
  }

  const GraphFunction& source_;
  const Evaluator& evaluate_;
  Rewriter rewrite_;
  std::map<const Resource*, int> writes_;
  int barriers_ = 0;
  size_t folded_bytes_ = 0;
  std::map<Key, Node*> seen_;
  std::set<const Node*> memory_;  // new nodes whose value is the memory of a variable
};

}  // namespace

GraphFunction simplify(const GraphFunction& function, const Evaluator& evaluate) {
  return Simplifier(function, evaluate).run();
}

}  // namespace cohort
