#include "core/device/backends.h"

namespace cohort {

// The build without CUDA: the same symbol, no backend.
DeviceBackend* cuda_backend() { return nullptr; }

}  // namespace cohort
