#pragma once

#include "core/device/device.h"

namespace cohort {

// One factory per device type; the build links either the real source or a stub that returns null.
DeviceBackend* cpu_backend();
DeviceBackend* cuda_backend();

}  // namespace cohort
