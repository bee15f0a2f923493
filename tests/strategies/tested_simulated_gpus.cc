#include "core/device/simulated/simulated_gpus.h"
#include "tests/strategies/tested_devices.h"

namespace cohort {

DeviceType tested_devices() { return DeviceType::kGpu; }

// They take turns.
int most_tested_replicas() { return 4; }

void make_tested_devices(int count) { simulated::use_simulated_gpus(count); }

}  // namespace cohort
