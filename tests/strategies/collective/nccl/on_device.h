#pragma once

#include "core/device/device.h"
#include "core/tensor/tensor.h"

namespace cohort::testing {

// Memory of a device that begins as these values.
class OnDevice {
 public:
  OnDevice(Device device, const Tensor& values)
      : device_(device), memory_(allocate_tensor(device, values.spec(), "the test")) {
    backend().copy_from_host(device_, values.raw(), memory_.raw(), values.bytes());
  }
  char* raw() { return static_cast<char*>(memory_.raw()); }
  Tensor read() const {
    Tensor values(memory_.dtype(), memory_.shape());
    backend().copy_to_host(device_, memory_.raw(), values.raw(), values.bytes());
    return values;
  }

 private:
  DeviceBackend& backend() const { return device_backend(device_.type); }
  Device device_;
  Tensor memory_;
};

}  // namespace cohort::testing
