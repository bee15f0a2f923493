#pragma once

#include "core/kernels/kernel.h"

namespace cohort {

// How a device converts between a 16-bit tensor of `spec` and its float32 copy.
struct HalfConversion {
  using Convert = void (*)(const KernelContext& context, const TensorSpec& spec, const void* from,
                           void* to);
  Convert widen, narrow;
};

bool has_16_bit(const KernelSpec& spec);  // whether any input or output is bfloat16 or float16

// The kernel that `factory` makes for `spec` with float32 in place of every 16-bit tensor, between
// conversions into and out of scratch memory.
std::unique_ptr<Kernel> make_widened(const KernelSpec& spec, const KernelFactory& factory,
                                     const HalfConversion& conversion);

// Makes kernels that are class templates over the type they compute in: K<double> for a float64
// first input, else K<float>, widened where tensors have 16 bits. K is constructed from the spec.
template <template <typename> class K>
std::unique_ptr<Kernel> make_floating_kernel(const KernelSpec& spec,
                                             const HalfConversion& conversion) {
  if (has_16_bit(spec))
    return make_widened(
        spec,
        [conversion](const KernelSpec& wide) { return make_floating_kernel<K>(wide, conversion); },
        conversion);
  if (spec.inputs[0].dtype == DType::kFloat64) return std::make_unique<K<double>>(spec);
  return std::make_unique<K<float>>(spec);
}

}  // namespace cohort
