#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph_function.h"

namespace cohort {

using Body = std::function<std::vector<Value>(const std::vector<Value>&)>;

// What `body` makes of inputs of these specs.
inline GraphFunction trace(const std::vector<TensorSpec>& inputs, const Body& body) {
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  std::vector<Value> values;
  for (const TensorSpec& spec : inputs) values.push_back(traced.graph->add_input("x", spec));
  traced.outputs = body(values);
  return traced;
}

}  // namespace cohort
