#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/graph/graph_function.h"
#include "core/kernels/kernel.h"

namespace cohort {

// What passes between host and device in each step of a plan on a device with memory of its own.
// Feeds go there in one block, together with what the kernels are told of the step, but for those
// that the device has already (DeviceFetcher); results come back with the first fault. All places
// are fixed, so that a recording of a step stays good. The blocks on the host are memory that the
// device copies by itself.
class DeviceIo {
 public:
  DeviceIo(Device device, const std::vector<Value>& inputs, const std::vector<Value>& outputs);

  Stream& stream() const { return *stream_; }
  void* feed(size_t index) const { return at(device_in_, feeds_[index]); }
  const StepInfo* device_step() const { return static_cast<const StepInfo*>(device_in_->data); }
  KernelFault* device_fault() const;
  // The device's copy of a constant of the graph, made at the first call.
  void* constant(const Tensor& value);

  // For each step: what is fed goes to the device; results come back from where they lie there.
  // Both only hand work to the stream, and feeds must stay until it has been synchronised.
  void send(std::span<const Tensor> feeds, const StepInfo& info);
  void fetch(const std::vector<const void*>& sources);
  // After the stream was synchronised.
  const KernelFault& fault() const { return *static_cast<const KernelFault*>(host_out_->data); }
  const void* result(size_t index) const { return at(host_out_, results_[index]); }

 private:
  static void* at(const std::shared_ptr<Buffer>& block, size_t offset) {
    return static_cast<char*>(block->data) + offset;
  }
  void send_block(size_t begin, size_t end);

  const Device device_;
  DeviceBackend& backend_;
  std::unique_ptr<Stream> stream_;
  size_t fault_offset_ = 0;
  std::vector<size_t> feeds_, results_;  // offsets
  std::vector<size_t> result_bytes_;
  std::shared_ptr<Buffer> host_in_, device_in_, host_out_;
  std::map<const Tensor*, std::shared_ptr<Buffer>> constants_;
};

}  // namespace cohort
