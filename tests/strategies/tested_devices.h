#pragma once

#include "core/device/device.h"

namespace cohort {

// What the replicas of a program's tests run on: one source of this is linked.
DeviceType tested_devices();
// Makes them, `count` and no more.
void make_tested_devices(int count);
// Of all workers together; more would take time and show little.
int most_tested_replicas();

}  // namespace cohort
