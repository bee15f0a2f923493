#include "core/kernels/cuda/floating_kernel.h"

#include "core/kernels/common/convert.h"
#include "core/kernels/cuda/launch.h"

namespace cohort::cuda {
namespace {

using HalfTypes = TypeList<bfloat16, float16>;

template <typename From, typename To>
void convert_all(const KernelContext& context, int64_t count, const void* from, void* to) {
  const From* source = static_cast<const From*>(from);
  To* target = static_cast<To*>(to);
  for_each_element(*context.stream, count,
                   [=] COHORT_DEVICE(int64_t i) { target[i] = convert<To>(source[i]); });
}

void widen_all(const KernelContext& context, const TensorSpec& spec, const void* from, void* to) {
  dispatch(HalfTypes{}, spec.dtype, "a conversion", [&]<typename Half>() {
    convert_all<Half, float>(context, spec.shape.num_elements(), from, to);
  });
}

void narrow_all(const KernelContext& context, const TensorSpec& spec, const void* from, void* to) {
  dispatch(HalfTypes{}, spec.dtype, "a conversion", [&]<typename Half>() {
    convert_all<float, Half>(context, spec.shape.num_elements(), from, to);
  });
}

}  // namespace

const HalfConversion kGpuHalfConversion = {widen_all, narrow_all};

}  // namespace cohort::cuda
