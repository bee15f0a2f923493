#pragma once

#include <memory>

#include "core/kernels/kernel.h"

namespace cohort {

// The CPU's kernel of a node, for a device with memory of its own that has none: the stream is
// waited for, and inputs and outputs are copied. With `updates_outputs` the kernel finds in its
// outputs what the device's memory held before (a scatter to a variable).
std::unique_ptr<Kernel> make_host_kernel(const KernelSpec& spec, bool updates_outputs);

}  // namespace cohort
