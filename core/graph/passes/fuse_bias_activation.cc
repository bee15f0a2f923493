#include <algorithm>
#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

bool is_activation(const Node& node) {
  static const std::set<std::string> known = {"Relu", "Gelu",    "GeluTanh",
                                              "Tanh", "Sigmoid", "Silu"};
  return known.count(node.op().name) > 0;
}

// The bias that `add` adds to `product`: a vector over the last axis.
Value bias_of(const Node& add, const Value& product) {
  const Value other = add.inputs()[0].is_same(product) ? add.inputs()[1] : add.inputs()[0];
  const Shape& shape = product.shape();
  const bool fits = !other.is_same(product) && shape.rank() >= 1 && other.shape().rank() == 1 &&
                    other.shape()[0] == shape.dim(-1) && add.outputs()[0] == product.spec() &&
                    other.dtype() == product.dtype();
  return fits ? other : Value();
}

// The contraction moves down to where its activation is; an assignment on the way, or that of
// another replica behind a Barrier, could change what it reads.
bool writes_between(const GraphFunction& function, const Node& first, const Node& last) {
  const auto& nodes = function.graph->nodes();
  return std::any_of(nodes.begin() + first.id(), nodes.begin() + last.id(),
                     [](const auto& node) { return is_write(*node) || is_barrier(*node); });
}

// One contraction with what follows it, ending at `last`.
struct Match {
  Node* contraction;
  Value bias;
  std::string activation;
};

// Matches by the id of the last node of each pattern.
std::map<int, Match> find_matches(const GraphFunction& function, std::set<int>& absorbed) {
  const Users users(function);
  std::map<int, Match> matches;
  for (const auto& node : function.graph->nodes()) {
    if (node->op().name != "MatMul" && node->op().name != "Conv2D") continue;
    Node* add = users.only_user(node->output());
    if (add == nullptr || add->op().name != "Add") continue;
    Match match{node.get(), bias_of(*add, node->output()), ""};
    if (!match.bias.defined()) continue;
    Node* last = add;
    Node* next = users.only_user(add->output());
    if (next != nullptr && is_activation(*next)) last = next;
    if (writes_between(function, *node, *last)) continue;
    absorbed.insert(node->id());
    if (last != add) {
      match.activation = last->op().name;
      absorbed.insert(add->id());
    }
    matches.emplace(last->id(), match);
  }
  return matches;
}

}  // namespace

GraphFunction fuse_bias_activation(const GraphFunction& function) {
  std::set<int> absorbed;
  const auto matches = find_matches(function, absorbed);
  Rewriter rewrite(function);
  for (const auto& node : function.graph->nodes()) {
    if (absorbed.count(node->id()) > 0) continue;
    const auto it = matches.find(node->id());
    if (it == matches.end()) {
      rewrite.copy(*node);
      continue;
    }
    const Match& match = it->second;
    std::vector<Value> inputs = rewrite(match.contraction->inputs());
    inputs.push_back(rewrite(match.bias));
    Attributes attributes = match.contraction->attributes();
    attributes.set("activation", match.activation);
    Node& fused = rewrite.add(*match.contraction, "Fused" + match.contraction->op().name,
                              std::move(inputs), std::move(attributes));
    rewrite.map(node->output(), fused.output());
  }
  return rewrite.finish();
}

}  // namespace cohort
