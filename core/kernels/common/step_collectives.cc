#include "core/kernels/common/step_collectives.h"

#include "core/collective/communicator.h"

namespace cohort {
namespace {

size_t replicas_of(const StepInfo& step) {
  return step.communicator == nullptr ? 1 : static_cast<size_t>(step.communicator->size());
}

}  // namespace

ReduceOp reduce_op_of(const KernelSpec& spec) {
  return static_cast<ReduceOp>(spec.attributes.get<int64_t>("op"));
}

size_t rank_of(const StepInfo& step) {
  return step.communicator == nullptr ? 0 : static_cast<size_t>(step.communicator->rank());
}

void check_root(int root, const StepInfo& step) {
  if (root >= static_cast<int>(replicas_of(step)))
    invalid("Broadcast: there is no replica ", root, " among ", step.num_replicas);
}

AllReduceCalls::AllReduceCalls(const KernelSpec& spec) {
  const std::vector<TensorSpec>& values = spec.inputs;
  for (const TensorSpec& value : values)
    segments_.push_back({nullptr, nullptr, value.shape.num_elements()});
  for (size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    const DType dtype = values[begin].dtype;
    while (end < values.size() && values[end].dtype == dtype) ++end;
    calls_.push_back(
        AllReduceCall{std::span(segments_).subspan(begin, end - begin), dtype, reduce_op_of(spec)});
  }
}

std::span<const Call> AllReduceCalls::with(const KernelContext& context) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].source = context.inputs[i];
    segments_[i].target = context.outputs[i];
  }
  return calls_;
}

Extents::Extents(const KernelSpec& spec, int64_t own, const TensorSpec& value)
    : op_(spec.op), extents_(spec.attributes.get<std::vector<int64_t>>("extents")), own_(own) {
  const int64_t row = value.shape.count(1, value.shape.rank());
  for (const int64_t rows : extents_) {
    elements_.push_back(rows * row);
    bytes_.push_back(elements_.back() * static_cast<int64_t>(dtype_size(value.dtype)));
  }
}

void Extents::check(const StepInfo& step) const {
  const size_t replicas = replicas_of(step), rank = rank_of(step);
  if (extents_.size() != replicas)
    invalid(op_, ": traced for ", extents_.size(), " replicas, run on ", replicas);
  if (extents_[rank] != own_)
    invalid(op_, ": replica ", step.replica_id, " has ", own_, " rows where ", extents_[rank],
            " were announced");
}

}  // namespace cohort
