#include <algorithm>
#include <limits>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

constexpr int kReturned = std::numeric_limits<int>::max();

// The id of the last node that needs each value or an alias of it; kReturned for outputs.
std::vector<int> last_uses(const GraphFunction& function) {
  const auto& nodes = function.graph->nodes();
  std::vector<int> last(nodes.size(), -1);
  for (const Value& output : function.outputs)
    last[static_cast<size_t>(output.node().id())] = kReturned;
  for (size_t i = nodes.size(); i-- > 0;) {
    const int use = is_alias(*nodes[i]) ? std::max(last[i], nodes[i]->id()) : nodes[i]->id();
    for (const Value& input : nodes[i]->inputs()) {
      int& known = last[static_cast<size_t>(input.node().id())];
      known = std::max(known, use);
    }
  }
  return last;
}

}  // namespace

GraphFunction copy_outlived_reads(const GraphFunction& function) {
  const auto last = last_uses(function);
  std::map<const Resource*, std::vector<int>> writes;
  for (const auto& node : function.graph->nodes())
    if (is_write(*node)) writes[node->resource()].push_back(node->id());
  Rewriter rewrite(function);
  for (const auto& node : function.graph->nodes()) {
    rewrite.copy(*node);
    if (!is_read(*node)) continue;
    const auto& ids = writes[node->resource()];
    const auto next_write = std::upper_bound(ids.begin(), ids.end(), node->id());
    if (next_write == ids.end()) continue;
    const int last_use = last[static_cast<size_t>(node->id())];
    // A scatter that uses the value would change it row by row while it reads it.
    const bool scatters =
        function.graph->nodes()[static_cast<size_t>(*next_write)]->op().name == "AssignScatter";
    if (last_use < *next_write || (last_use == *next_write && !scatters)) continue;
    const Value read = rewrite(node->output());
    rewrite.map(node->output(),
                rewrite.add(*node, "Cast", {read}, {{"dtype", read.dtype()}}).output());
  }
  return rewrite.finish();
}

}  // namespace cohort
