#include "strategies/parameter_server/replica_parts.h"

#include "core/runtime/aggregation.h"

namespace cohort::parameter_server {

bool can_be_merged(const Variable& variable) {
  return !is_made_on_read(variable) || variable.aggregation() != Aggregation::kNone;
}

ReplicaParts::ReplicaParts(const Variable& variable, int replicas)
    : divide_(
          [&variable, replicas](const std::vector<Value>& values) {
            return split_over_copies(variable, values[0], static_cast<size_t>(replicas));
          },
          "divide"),
      merge_(
          [&variable](const std::vector<Value>& parts) {
            return std::vector{can_be_merged(variable) ? merge_copies(variable, parts) : parts[0]};
          },
          "merge") {
  for (int r = 0; r < replicas; ++r)
    parts_.push_back(Tensor::zeros(variable.spec().dtype, variable.spec().shape));
}

void ReplicaParts::divide(const Tensor& value) {
  const std::vector<Tensor> parts = divide_({value});
  for (size_t r = 0; r < parts_.size(); ++r) parts_[r].assign(parts[r]);
}

Tensor ReplicaParts::merged() const { return merge_(parts_)[0].clone(); }

}  // namespace cohort::parameter_server
