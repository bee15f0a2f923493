#include "core/device/cuda/cuda_error.h"

namespace cohort {
namespace {

Code code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return Code::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

}  // namespace

void check_cuda(cudaError_t status, const char* call, Device device) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // forgets it: later calls report it again otherwise
  fail(code_of(status), device, ": ", call, ": ", cudaGetErrorString(status), " (",
       cudaGetErrorName(status), ")");
}

}  // namespace cohort
