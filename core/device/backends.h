#pragma once

#include "core/device/device.h"

namespace cohort {

// One factory per device type; the build links either the real source or a stub that returns null.
DeviceBackend* cpu_backend();
DeviceBackend* cuda_backend();

// What the build with CUDA and its stub both have.
void set_cuda_logical_gpus(const std::vector<LogicalGpu>& gpus);
std::string missing_cuda_reason();  // empty where there is a GPU

// Puts another backend in the place of the GPUs', or takes it away again (null): a simulation, in
// tests. Before any device is used.
void replace_gpu_backend(DeviceBackend* backend);

}  // namespace cohort
