#include "tests/strategies/tested_devices.h"

namespace cohort {

DeviceType tested_devices() { return DeviceType::kCpu; }

int most_tested_replicas() { return 8; }

void make_tested_devices(int count) { set_logical_cpus(count, 1); }

}  // namespace cohort
