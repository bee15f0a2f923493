#pragma once

#include <cuda_runtime_api.h>

#include "core/device/device.h"

namespace cohort {

// Throws the failure of a CUDA call, with its text, CUDA's name of the code and the device:
// kResourceExhausted for memory, kUnavailable where there is no driver or the device is lost,
// kInternal for what is our own mistake.
void check_cuda(cudaError_t status, const char* call, Device device);

}  // namespace cohort

// COHORT_CUDA(device, cudaStreamSynchronize(stream)) calls and checks.
#define COHORT_CUDA(device, call) ::cohort::check_cuda(call, #call, device)
