#pragma once

#include <memory>
#include <vector>

#include "core/device/device.h"

namespace cohort {

// Gives tensors a copy in the memory of a device before the step that is fed with them, which then
// need not wait for it. Whoever makes batches ahead of the steps does so, on a thread of its own:
// while one piece goes to the device, the next one is copied to where the device takes it from. One
// thread at a time.
class DeviceFetcher {
 public:
  // REQUIRES: `device` has memory of its own.
  explicit DeviceFetcher(Device device);
  ~DeviceFetcher();

  // The same tensors, in the same memory, with copies on the device that are complete and stay as
  // long as the memory is referred to: nobody may write to it any more.
  std::vector<Tensor> fetch(std::vector<Tensor> tensors);

 private:
  struct Lane;
  void copy(const void* source, void* target, size_t bytes);

  const Device device_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // that take turns
  size_t turn_ = 0;
};

// Where `device` has the elements of `tensor`, or null where they were not fetched. It stays as
// long as the tensor. Views of what was fetched have their part.
const void* fetched(const Tensor& tensor, Device device);

}  // namespace cohort
