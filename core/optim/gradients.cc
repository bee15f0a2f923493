#include "core/graph/gradients.h"

#include <map>

#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizer.h"
#include "core/runtime/merged_variable.h"

namespace cohort::optim {
namespace {

// The gradient of a variable from those of all places that read it.
Gradient combine(const std::vector<Gradient>& parts) {
  if (parts.empty()) return {};
  if (parts.size() == 1) return parts[0];
  std::vector<Value> values, indices;
  for (const Gradient& g : parts) {
    if (!g.sparse()) break;
    values.push_back(g.values);
    indices.push_back(ops::cast(g.indices, DType::kInt64));
  }
  if (values.size() == parts.size())
    return {ops::concat(values, 0), ops::concat(indices, 0), parts[0].rows};
  Value sum = parts[0].dense();
  for (size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i].dense();
  return {.values = sum};
}

}  // namespace

std::vector<Gradient> gradients(const Value& loss,
                                const std::vector<std::shared_ptr<Variable>>& variables) {
  std::map<const Resource*, std::vector<Gradient>> parts;
  for (const auto& variable : variables) parts[variable.get()] = {};
  std::vector<Value> reads;
  for (const auto& node : loss.graph().nodes())
    if (node->op().name == "ReadVariable" && parts.count(merged_of(node->resource())) > 0)
      reads.push_back(node->output());
  const std::vector<Gradient> of_reads = cohort::gradients(loss, reads);
  for (size_t i = 0; i < reads.size(); ++i)
    if (of_reads[i]) parts[merged_of(reads[i].node().resource())].push_back(of_reads[i]);

  std::vector<Gradient> result;
  for (const auto& variable : variables) result.push_back(combine(parts[variable.get()]));
  return result;
}

}  // namespace cohort::optim
