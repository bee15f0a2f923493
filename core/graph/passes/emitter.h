#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph.h"

namespace cohort {

// Emits the nodes of a graph in the order in which it is asked for them, but each once, and behind
// those that must run before it.
class Emitter {
 public:
  // By id, as predecessors() has them; they have to outlive this.
  using Predecessors = std::vector<std::vector<const Node*>>;
  using Emit = std::function<void(const Node& node)>;

  Emitter(const Predecessors& predecessors, Emit emit);

  // Emits `node` and all that must run before it, unless that has been.
  void operator()(const Node& node);

 private:
  const Predecessors& predecessors_;
  const Emit emit_;
  std::vector<bool> is_known_;  // by node: whether it has been emitted, or is about to be
};

}  // namespace cohort
