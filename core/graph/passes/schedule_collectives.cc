#include <algorithm>

#include "core/graph/passes/emitter.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

// Emits all nodes in their order, but a start as soon as its inputs are there, together with the
// light nodes that finish them, and waits, with the light nodes that follow them, when something
// needs them.
class Scheduler {
 public:
  explicit Scheduler(const GraphFunction& function)
      : function_(function),
        predecessors_(local_predecessors(function)),
        rewrite_(function),
        emit_(predecessors_, [this](const Node& node) { rewrite_.copy(node); }),
        starts_after_(function.graph->nodes().size()) {}

  GraphFunction run() {
    place_starts();
    find_deferred();
    for (const auto& node : function_.graph->nodes()) {
      if (!deferred_[static_cast<size_t>(node->id())]) emit_(*node);
      for (const Node* start : starts_after_[static_cast<size_t>(node->id())]) emit_(*start);
    }
    for (const auto& node : function_.graph->nodes()) emit_(*node);
    return rewrite_.finish();
  }

 private:
  // Starts keep their order among each other. That of other communication and a start must be the
  // same on every replica, whose graphs may differ in nodes that depend on shapes; so it follows
  // the values that were to be reduced, not what they were made of.
  void place_starts() {
    int place = 0, last_blocking = 0;
    std::vector<int> ready;     // by node: after which one its value can be there
    std::vector<int> blocking;  // by node: the last communication up to it that is not background
    for (const auto& node : function_.graph->nodes()) {
      int& own = ready.emplace_back(node->id());
      if (communicates(*node) && !is_start(*node) && !is_wait(*node)) last_blocking = node->id();
      blocking.push_back(last_blocking);
      if (!is_light(*node) && !is_start(*node)) continue;
      own = 0;
      for (const Node* before : predecessors_[static_cast<size_t>(node->id())])
        own = std::max(own, ready[static_cast<size_t>(before->id())]);
      if (!is_start(*node)) continue;
      for (const Value& input : node->inputs())
        own = std::max(own, blocking[static_cast<size_t>(input.node().id())]);
      place = std::max(place, own);
      starts_after_[static_cast<size_t>(place)].push_back(node.get());
    }
  }

  // All that is light behind a wait, even where the wait itself is over, so that the same
  // arithmetic has the same order everywhere and can be fused.
  void find_deferred() {
    for (const auto& node : function_.graph->nodes()) {
      const auto& inputs = node->inputs();
      const bool follows = std::any_of(inputs.begin(), inputs.end(), [&](const Value& input) {
        return deferred_[static_cast<size_t>(input.node().id())];
      });
      deferred_.push_back(is_wait(*node) || (is_light(*node) && follows));
    }
  }

  const GraphFunction& function_;
  const std::vector<std::vector<const Node*>> predecessors_;
  Rewriter rewrite_;
  Emitter emit_;
  std::vector<bool> deferred_;                          // by node
  std::vector<std::vector<const Node*>> starts_after_;  // by node
};

}  // namespace

GraphFunction schedule_collectives(const GraphFunction& function) {
  return Scheduler(function).run();
}

}  // namespace cohort
