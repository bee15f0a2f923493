#include "tests/kernels/cpu/tested_device.h"

namespace cohort::testing {

Device tested_device() { return {}; }

std::unique_ptr<Kernel> make_tested_kernel(KernelSpec spec) { return make_kernel(spec); }

void run_tested_kernel(Kernel& kernel, const KernelSpec&, const KernelContext& context) {
  kernel.run(context);
}

}  // namespace cohort::testing
