#include "core/device/backends.h"

namespace cohort {

// The build without CUDA: the same symbols, no backend.
DeviceBackend* cuda_backend() { return nullptr; }

std::string missing_cuda_reason() { return "this build has no CUDA; build with --config=cuda"; }

void set_cuda_logical_gpus(const std::vector<LogicalGpu>&) {
  fail(Code::kNotFound, "there are no GPUs to divide: ", missing_cuda_reason());
}

}  // namespace cohort
