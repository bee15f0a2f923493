#include "core/runtime/shared_variables.h"

#include <algorithm>

#include "core/graph/passes/rewriter.h"
#include "core/runtime/variable.h"

namespace cohort {

int replicas_sharing(const Resource& resource) {
  const auto* variable = dynamic_cast<const Variable*>(&resource);
  return variable != nullptr ? variable->num_sharing() : 1;
}

int number_among_sharing(const GraphFunction& function, int local_replica) {
  for (const auto& node : function.graph->nodes())
    if (is_write(*node) && replicas_sharing(*node->resource()) > 1)
      return dynamic_cast<const Variable&>(*node->resource()).first_sharing() + local_replica;
  return local_replica;
}

bool writes_shared_variables(const GraphFunction& function) {
  const auto& nodes = function.graph->nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return is_write(*node) && replicas_sharing(*node->resource()) > 1;
  });
}

}  // namespace cohort
