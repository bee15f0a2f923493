#include "core/graph/passes/emitter.h"

#include <utility>

namespace cohort {

Emitter::Emitter(const Predecessors& predecessors, Emit emit)
    : predecessors_(predecessors), emit_(std::move(emit)), is_known_(predecessors.size(), false) {}

void Emitter::operator()(const Node& node) {
  struct Pending {
    const Node* node;
    size_t next = 0;  // of its predecessors
  };
  std::vector<Pending> stack;  // no recursion: a chain may be as long as the graph
  const auto push = [&](const Node& wanted) {
    const auto id = static_cast<size_t>(wanted.id());
    if (is_known_[id]) return;
    is_known_[id] = true;
    stack.push_back({&wanted});
  };
  push(node);
  while (!stack.empty()) {
    Pending& top = stack.back();
    const auto& before = predecessors_[static_cast<size_t>(top.node->id())];
    if (top.next < before.size()) {
      push(*before[top.next++]);
    } else {
      emit_(*top.node);
      stack.pop_back();
    }
  }
}

}  // namespace cohort
