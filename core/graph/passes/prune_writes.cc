#include <map>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"

namespace cohort {
namespace {

// The wait of each start.
std::map<const Node*, Node*> waits_of_starts(const GraphFunction& function) {
  std::map<const Node*, Node*> waits;
  for (const auto& node : function.graph->nodes())
    if (is_wait(*node)) waits[&node->inputs()[0].node()] = node.get();
  return waits;
}

class Pruner {
 public:
  Pruner(const GraphFunction& function, const std::function<bool(const Resource&)>& writes)
      : function_(function),
        live_(find_live(function,
                        [&](const Node& n) { return is_write(n) && !writes(*n.resource()); })),
        used_(function.outputs.begin(), function.outputs.end()),
        waits_(waits_of_starts(function)),
        rewrite_(function) {
    for (const auto& node : function.graph->nodes())
      if (is_live(*node)) used_.insert(node->inputs().begin(), node->inputs().end());
  }

  GraphFunction run() {
    for (const auto& node : function_.graph->nodes()) {
      if (!is_live(*node)) continue;
      if (is_start(*node))
        copy_start(*node);
      else
        rewrite_.copy(*node);
    }
    return rewrite_.finish();
  }

 private:
  bool is_live(const Node& node) const { return live_[static_cast<size_t>(node.id())]; }

  std::vector<int64_t> unwanted(const Node& start) const {
    std::vector<int64_t> indices;
    const auto wait = waits_.find(&start);
    if (wait == waits_.end()) return indices;
    for (int i = 0; i < static_cast<int>(wait->second->outputs().size()); ++i)
      if (used_.count(wait->second->output(i)) == 0) indices.push_back(i);
    return indices;
  }

  void copy_start(Node& start) {
    Attributes attributes = start.attributes();
    if (auto indices = unwanted(start); !indices.empty())
      attributes.set("unwanted", std::move(indices));
    Node& added = rewrite_.add(start, start.op().name, rewrite_(start.inputs()), attributes);
    for (int i = 0; i < static_cast<int>(added.outputs().size()); ++i)
      rewrite_.map(start.output(i), added.output(i));
  }

  const GraphFunction& function_;
  const std::vector<bool> live_;
  ValueSet used_;
  const std::map<const Node*, Node*> waits_;
  Rewriter rewrite_;
};

}  // namespace

GraphFunction prune_writes(const GraphFunction& function,
                           const std::function<bool(const Resource&)>& writes) {
  return Pruner(function, writes).run();
}

}  // namespace cohort
