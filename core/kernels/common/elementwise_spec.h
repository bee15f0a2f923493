#pragma once

#include "core/kernels/kernel.h"
#include "core/tensor/elementwise_program.h"

namespace cohort {

// The type that a program computes in (ElementwiseProgram): float32, float64 or int64.
DType compute_dtype(const ElementwiseProgram& program, const KernelSpec& spec);

// Makes the kernel of one program over `groups` groups of tensors, whose inputs and outputs follow
// each other group by group.
using ElementwiseFactory = std::unique_ptr<Kernel> (*)(const ElementwiseProgram& program,
                                                       const KernelSpec& spec, size_t groups);
// Registers all elementwise ops of a device, each as a program.
void register_elementwise(DeviceType type, ElementwiseFactory factory);

}  // namespace cohort
