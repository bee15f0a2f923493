#include <algorithm>
#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/clusters.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

// Variables that are read again after a write; their updates stay where they are.
std::set<const Resource*> read_after_write(const GraphFunction& function) {
  std::set<const Resource*> written, again;
  for (const auto& node : function.graph->nodes()) {
    if (is_write(*node)) written.insert(node->resource());
    if (is_read(*node) && written.count(node->resource()) > 0) again.insert(node->resource());
  }
  return again;
}

class UpdateFusion {
 public:
  explicit UpdateFusion(const GraphFunction& function)
      : function_(function), users_(function), excluded_(read_after_write(function)) {
    const auto& nodes = function.graph->nodes();
    has_barrier_ =
        std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return is_barrier(*node); });
  }

  GraphFunction run() {
    Clusters clusters(function_);
    std::map<Key, int> groups;
    for (const auto& node : function_.graph->nodes()) {
      if (is_wait(*node)) groups.clear();
      if (!is_update(*node)) continue;
      const auto it = groups.find(key(*node));
      if (it == groups.end() || !clusters.try_add(it->second, *node))
        groups[key(*node)] = clusters.create(*node);
    }
    Rewriter rewrite(function_);
    for (const auto& group : clusters.order()) {
      if (group.size() == 1) {
        rewrite.copy(*group[0]);
      } else {
        emit(rewrite, group);
      }
    }
    return rewrite.finish();
  }

 private:
  // What must be equal for two updates to run as one: the program, how each operand is read, and,
  // behind a Barrier, whether there is more than a number, which replicas cannot divide.
  using Key = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

  Key key(const Node& node) const {
    std::vector<int64_t> kinds = node.attributes().get<std::vector<int64_t>>("dtypes");
    for (const Value& input : node.inputs()) {
      kinds.push_back(static_cast<int64_t>(input.dtype()));
      kinds.push_back(input.shape() == node.outputs()[0].shape ? 1 : 0);
    }
    kinds.push_back(has_barrier_ && node.outputs()[0].shape.num_elements() == 1 ? 1 : 0);
    return {node.attributes().get<std::vector<int64_t>>("program"), std::move(kinds)};
  }

  bool is_update(Node& node) const {
    if (node.op().name != "FusedElementwise") return false;
    const Shape& shape = node.outputs()[0].shape;
    bool shaped = false;  // the shape of a group is that of its widest input
    for (const Value& input : node.inputs()) {
      if (input.shape() != shape && input.shape().num_elements() != 1) return false;
      shaped = shaped || input.shape() == shape;
    }
    if (!shaped) return false;
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Node* user = users_.only_user(node.output(static_cast<int>(i)));
      if (user == nullptr || user->op().name != "AssignVariable" ||
          excluded_.count(user->resource()) > 0)
        return false;
    }
    return true;
  }

  static void emit(Rewriter& rewrite, const std::vector<Node*>& group) {
    std::vector<Value> inputs;
    for (const Node* node : group) {
      const auto mapped = rewrite(node->inputs());
      inputs.insert(inputs.end(), mapped.begin(), mapped.end());
    }
    const Attributes& first = group[0]->attributes();
    Attributes attributes;
    attributes.set("program", first.get<std::vector<int64_t>>("program"));
    attributes.set("dtypes", first.get<std::vector<int64_t>>("dtypes"));
    attributes.set("groups", static_cast<int64_t>(group.size()));
    Node& fused =
        rewrite.add(*group[0], "MultiElementwise", std::move(inputs), std::move(attributes));
    int output = 0;
    for (Node* node : group)
      for (size_t i = 0; i < node->outputs().size(); ++i)
        rewrite.map(node->output(static_cast<int>(i)), fused.output(output++));
  }

  const GraphFunction& function_;
  Users users_;
  std::set<const Resource*> excluded_;
  bool has_barrier_;
};

}  // namespace

GraphFunction fuse_updates(const GraphFunction& function) { return UpdateFusion(function).run(); }

}  // namespace cohort
