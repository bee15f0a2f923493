#pragma once

#include "core/kernels/kernel.h"

namespace cohort {

bool has_16_bit(const KernelSpec& spec);  // whether any input or output is bfloat16 or float16

// The kernel that `factory` makes for `spec` with float32 in place of every 16-bit tensor, between
// conversions into and out of scratch memory.
std::unique_ptr<Kernel> make_widened(const KernelSpec& spec, const KernelFactory& factory);

// Makes kernels that are class templates over the type they compute in: K<double> for a float64
// first input, else K<float>, widened where tensors have 16 bits. K is constructed from the spec.
template <template <typename> class K>
std::unique_ptr<Kernel> make_floating(const KernelSpec& spec) {
  if (has_16_bit(spec)) return make_widened(spec, make_floating<K>);
  if (spec.inputs[0].dtype == DType::kFloat64) return std::make_unique<K<double>>(spec);
  return std::make_unique<K<float>>(spec);
}

}  // namespace cohort
