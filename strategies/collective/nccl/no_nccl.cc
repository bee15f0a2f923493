#include "strategies/collective/nccl/device_library.h"

namespace cohort {

// The build without CUDA.
DeviceLibrary* nccl_library() { return nullptr; }

}  // namespace cohort
