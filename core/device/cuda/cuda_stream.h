#pragma once

#include <cuda_runtime_api.h>
#include <memory>

#include "core/device/device.h"

namespace cohort {

// A CUDA stream; recordings are CUDA graphs.
std::unique_ptr<Stream> make_cuda_stream(Device device);

// The stream that kernels launch on, whose card becomes the calling thread's. `stream` must be one
// of make_cuda_stream.
inline cudaStream_t cuda_stream(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

}  // namespace cohort
