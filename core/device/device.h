#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

enum class DeviceType : uint8_t { kCpu = 0, kGpu = 1 };

// The identity of a device of this process: a small comparable value without run-time state.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  auto operator<=>(const Device&) const = default;
};
std::ostream& operator<<(std::ostream& out, Device device);  // "cpu:0"
// Parses "cpu:1", "CPU:1", "gpu:0"; a missing index is 0. kInvalidArgument shows the text and the
// form.
Device parse_device(std::string_view text);

// Splits the host's processor into `count` logical devices cpu:0 .. cpu:count-1 that run kernels on
// `threads_each` threads; 0 divides the usable cores evenly, at least one thread each. Call it
// before the first function is compiled: kernels are prepared for a number of threads.
void set_logical_cpus(int count, int threads_each = 0);

// All devices of this process, CPUs first.
std::vector<Device> list_devices();
// Threads that kernels of a CPU device run on. Unknown devices throw kNotFound listing the known
// ones.
int device_threads(Device device);

// What the runtime needs from a kind of device. One implementation for each type: device/cpu,
// device/cuda.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual int count() const = 0;
  // Uninitialised memory on `device`; kResourceExhausted says how much was asked for.
  virtual std::shared_ptr<Buffer> allocate(Device device, size_t bytes) = 0;
  // Copies between this device and host memory, complete on return.
  virtual void copy_to_host(Device device, const void* source, void* target, size_t bytes) = 0;
  virtual void copy_from_host(Device device, const void* source, void* target, size_t bytes) = 0;
};

// The backend of a device type; kUnimplemented with the reason where this build has none.
DeviceBackend& device_backend(DeviceType type);

}  // namespace cohort
