#pragma once

#include "core/kernels/common/widened_kernel.h"

namespace cohort::cuda {

// On the kernel's stream.
extern const HalfConversion kGpuHalfConversion;

// Makes kernels that are class templates over the type they compute in (make_floating_kernel).
template <template <typename> class K>
std::unique_ptr<Kernel> make_floating(const KernelSpec& spec) {
  return make_floating_kernel<K>(spec, kGpuHalfConversion);
}

}  // namespace cohort::cuda
