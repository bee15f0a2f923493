#pragma once

#include "core/kernels/kernel.h"

namespace cohort::testing {

// The device whose kernels a test program tests; each program that runs these tests defines it.
Device tested_device();

// The kernel of `spec` on the tested device: as in a plan the host's, where the device has none.
std::unique_ptr<Kernel> make_tested_kernel(KernelSpec spec);

// Runs it on host memory: where the device has memory of its own, what `context` points to goes
// there and comes back, and the kernel is recorded and replayed if that may be.
void run_tested_kernel(Kernel& kernel, const KernelSpec& spec, const KernelContext& context);

}  // namespace cohort::testing
