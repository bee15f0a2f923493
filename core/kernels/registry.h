#pragma once

#include <string>
#include <vector>

#include "core/device/device.h"

namespace cohort {

// The ops that have a kernel for a device type in this program, sorted.
std::vector<std::string> ops_with_kernel(DeviceType type);

}  // namespace cohort
