#include "strategies/collective/all_reduce_calls.h"

namespace cohort::collective {

AllReduceCalls::AllReduceCalls(std::span<const Tensor> values, std::span<Tensor> results,
                               ReduceOp op)
    : op_(op) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& value = values[i];
    specs_.push_back(value.spec());
    segments_[value.dtype()].push_back({value.raw(), results[i].raw(), value.num_elements()});
  }
  if (values.empty()) segments_[DType::kFloat32];
}

std::vector<AllReduceCall> AllReduceCalls::calls() const {
  std::vector<AllReduceCall> calls;
  for (const auto& [dtype, segments] : segments_)
    calls.push_back(AllReduceCall{segments, dtype, op_, specs_});
  return calls;
}

}  // namespace cohort::collective
