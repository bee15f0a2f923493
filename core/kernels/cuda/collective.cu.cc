#include "core/kernels/cuda/launch.h"
#include "core/kernels/kernel.h"

namespace cohort::cuda {
namespace {

void replica_id(const KernelCall&, const KernelContext& context) {
  int64_t* out = context.output<int64_t>(0);
  const StepInfo* step = context.device_step;
  for_each_element(*context.stream, 1, [=] COHORT_DEVICE(int64_t) { *out = step->replica_id; });
}

COHORT_REGISTER_KERNEL("ReplicaId", kGpu, stateless_kernel(replica_id));

}  // namespace
}  // namespace cohort::cuda
