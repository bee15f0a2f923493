#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "core/device/device.h"

namespace cohort::cuda {

// The machine code of a CUDA source for `architecture` ("sm_90"), or its PTX ("compute_90"). It may
// include core/kernels/common/convert.h and functors.h, which the program carries with it.
// kInternal with the compiler's words. Needs no GPU. Thread-safe.
std::string compile_source(const std::string& source, const std::string& architecture);

// The kernel `run` of a source for the card of `device`, compiled once in this process.
// Thread-safe.
cudaKernel_t load_source(const std::string& source, Device device);

}  // namespace cohort::cuda
