#include "core/optim/reduction.h"

#include <algorithm>

#include "core/distribute/strategy.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::optim {

std::vector<size_t> ready_order(const std::vector<Gradient>& gradients) {
  std::vector<size_t> order;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return gradients[a].values.node().id() < gradients[b].values.node().id();
  });
  return order;
}

std::vector<Gradient> reduce_rounded(DType dtype, const std::vector<Gradient>& gradients,
                                     const Value& when) {
  Strategy& strategy = current_strategy();
  const double replicas = strategy.num_replicas_in_sync();
  const auto is_rounded = [&](size_t i) {
    return !gradients[i].sparse() && gradients[i].values.dtype() == DType::kFloat32;
  };
  std::vector<Gradient> shares = gradients;
  for (const size_t i : ready_order(gradients))
    if (is_rounded(i)) shares[i].values = ops::cast(gradients[i].values * (1 / replicas), dtype);
  std::vector<Gradient> sums = strategy.reduce_gradients(shares, when);
  for (const size_t i : ready_order(sums))
    if (is_rounded(i)) sums[i].values = ops::cast(sums[i].values, DType::kFloat32) * replicas;
  return sums;
}

std::vector<Gradient> of_first_replica(const std::vector<Gradient>& gradients) {
  const Value is_first = ops::equal(ops::replica_id(), ops::constant(0, DType::kInt64));
  std::vector<Gradient> parts = gradients;
  for (const size_t i : ready_order(gradients)) {
    Value& values = parts[i].values;
    values = ops::where(is_first, values, ops::constant(0, values.dtype()));
  }
  return parts;
}

void check_reduce_as(const GradientOptions& options) {
  if (!options.reduce_as) return;
  if (!is_half(*options.reduce_as))
    invalid("reduce_as must be bfloat16 or float16, got ", *options.reduce_as);
  if (options.power_sgd)
    invalid("reduce_as and power_sgd cannot both be set: each says how gradients are summed");
}

}  // namespace cohort::optim
