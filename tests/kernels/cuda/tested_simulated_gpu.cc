#include "core/device/simulated/simulated_gpus.h"
#include "tests/kernels/cpu/tested_device.h"

namespace cohort::testing {

Device tested_device() {
  static const bool kSimulated = (simulated::use_simulated_gpus(1), true);
  return {kSimulated ? DeviceType::kGpu : DeviceType::kCpu, 0};
}

}  // namespace cohort::testing
