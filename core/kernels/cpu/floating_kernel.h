#pragma once

#include "core/kernels/common/widened_kernel.h"

namespace cohort {

// The CPU's, on the calling thread's team.
extern const HalfConversion kCpuHalfConversion;

// Makes kernels that are class templates over the type they compute in (make_floating_kernel).
template <template <typename> class K>
std::unique_ptr<Kernel> make_floating(const KernelSpec& spec) {
  return make_floating_kernel<K>(spec, kCpuHalfConversion);
}

}  // namespace cohort
