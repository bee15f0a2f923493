#include <algorithm>

#include "core/graph/op.h"
#include "core/graph/passes/emitter.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

int calls_before_meeting(const Graph& graph) {
  const Node* const meeting = first_meeting(graph);
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
        return meets_others(*node) && (meeting == nullptr || node->id() < meeting->id());
      }));
}

// Emits all nodes in their order, but those that are held behind the first meeting, or when
// something needs them.
class WriteHolder {
 public:
  explicit WriteHolder(const GraphFunction& function)
      : function_(function),
        predecessors_(predecessors(function)),
        rewrite_(function),
        emit_(predecessors_, [this](const Node& node) { copy(node); }),
        held_(function.graph->nodes().size(), false) {}

  GraphFunction run() {
    const auto& nodes = function_.graph->nodes();
    const Node* meeting = first_meeting(*function_.graph);
    const auto before = meeting ? static_cast<size_t>(meeting->id()) : nodes.size();
    hold_writes(before);
    hold_what_only_they_need(before);
    for (size_t i = 0; i < before; ++i)
      if (!held_[i]) emit_(*nodes[i]);
    if (meeting) emit_(*meeting);
    for (const auto& node : nodes) emit_(*node);
    return rewrite_.finish();
  }

 private:
  // Of the first `count` nodes, writes and the light nodes that follow them.
  void hold_writes(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const Node& node = *function_.graph->nodes()[i];
      held_[i] =
          is_write(node) ||
          (is_light(node) && std::any_of(predecessors_[i].begin(), predecessors_[i].end(),
                                         [&](const Node* other) { return is_held(*other); }));
    }
  }

  void hold_what_only_they_need(size_t count) {
    std::vector<bool> needed(held_.size(), false);
    for (const Value& output : function_.outputs)
      needed[static_cast<size_t>(output.node().id())] = true;
    for (size_t i = held_.size(); i-- > 0;) {
      const Node& node = *function_.graph->nodes()[i];
      if (i < count && is_light(node) && !needed[i]) held_[i] = true;
      if (held_[i]) continue;
      for (const Value& input : node.inputs())
        needed[static_cast<size_t>(input.node().id())] = true;
    }
  }

  bool is_held(const Node& node) const { return held_[static_cast<size_t>(node.id())]; }

  void copy(const Node& node) {
    if (is_write(node) && !met_) rewrite_.add(node, "Barrier", {}, {});
    met_ = met_ || is_write(node) || is_meeting(node);
    rewrite_.copy(node);
  }

  const GraphFunction& function_;
  const std::vector<std::vector<const Node*>> predecessors_;
  Rewriter rewrite_;
  Emitter emit_;
  std::vector<bool> held_;  // by node
  bool met_ = false;        // so far
};

}  // namespace

GraphFunction meet_before_writing(const GraphFunction& function) {
  return WriteHolder(function).run();
}

GraphFunction drop_barriers(const GraphFunction& function) {
  Rewriter rewrite(function);
  for (const auto& node : function.graph->nodes())
    if (!is_barrier(*node)) rewrite.copy(*node);
  return rewrite.finish();
}

GraphFunction meet_as(const GraphFunction& other, const GraphFunction& function) {
  const int number = calls_before_meeting(*other.graph);
  Rewriter rewrite(function);
  const auto meet = [&] { rewrite.graph().add_named("meet_as", "Barrier", {}, {}); };
  int calls = 0;
  for (const auto& node : function.graph->nodes()) {
    if (meets_others(*node) && calls++ == number) meet();
    rewrite.copy(*node);
  }
  if (calls <= number) meet();
  return rewrite.finish();
}

}  // namespace cohort
