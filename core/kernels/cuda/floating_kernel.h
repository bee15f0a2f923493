#pragma once

#include <type_traits>

#include "core/kernels/common/convert.h"
#include "core/kernels/common/widened_kernel.h"

namespace cohort::cuda {

// On the kernel's stream.
extern const HalfConversion kGpuHalfConversion;

// Makes kernels that are class templates over the type they compute in (make_floating_kernel).
template <template <typename> class K>
std::unique_ptr<Kernel> make_floating(const KernelSpec& spec) {
  return make_floating_kernel<K>(spec, kGpuHalfConversion);
}

// What numbers of type S are computed in.
template <typename S>
using Computed = std::conditional_t<sizeof(S) == sizeof(uint16_t), float, S>;

// Makes kernels that are class templates over the type which tensors have in memory, K<S>: of 16
// bits they need no copies in float32.
template <template <typename> class K>
std::unique_ptr<Kernel> make_stored(const KernelSpec& spec) {
  std::unique_ptr<Kernel> kernel;
  dispatch(FloatTypes{}, spec.inputs[0].dtype, spec.op,
           [&]<typename S>() { kernel = std::make_unique<K<S>>(spec); });
  return kernel;
}

}  // namespace cohort::cuda
