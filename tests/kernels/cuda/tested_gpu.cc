#include "tests/kernels/cpu/tested_device.h"

namespace cohort::testing {

Device tested_device() { return {DeviceType::kGpu, 0}; }

}  // namespace cohort::testing
