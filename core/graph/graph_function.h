#pragma once

#include <memory>
#include <vector>

#include "core/graph/graph.h"

namespace cohort {

// A traced function: a graph that owns its nodes, with the values to return. Its effects are the
// stateful nodes, which take place whether or not an output needs them.
struct GraphFunction {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::vector<Value> outputs;
};

}  // namespace cohort
