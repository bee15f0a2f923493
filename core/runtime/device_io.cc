#include "core/runtime/device_io.h"

#include <cstring>
#include <type_traits>

#include "core/device/device_fetcher.h"

namespace cohort {
namespace {

static_assert(std::is_trivially_copyable_v<StepInfo> && std::is_trivially_copyable_v<KernelFault>);

// Lays values out one behind the other; `end` is where the first may begin, and becomes their end.
std::vector<size_t> place(const std::vector<Value>& values, size_t& end) {
  std::vector<size_t> offsets;
  for (const Value& value : values) {
    offsets.push_back(end);
    end += aligned_size(value.spec().bytes());
  }
  return offsets;
}

}  // namespace

DeviceIo::DeviceIo(Device device, const std::vector<Value>& inputs,
                   const std::vector<Value>& outputs)
    : device_(device),
      backend_(device_backend(device.type)),
      stream_(backend_.make_stream(device)),
      fault_offset_(aligned_size(sizeof(StepInfo))) {
  size_t in_bytes = fault_offset_ + aligned_size(sizeof(KernelFault));
  feeds_ = place(inputs, in_bytes);
  size_t out_bytes = aligned_size(sizeof(KernelFault));
  results_ = place(outputs, out_bytes);
  for (const Value& output : outputs) result_bytes_.push_back(output.spec().bytes());
  host_in_ = backend_.allocate_staging(device_, in_bytes);
  host_out_ = backend_.allocate_staging(device_, out_bytes);
  device_in_ = backend_.allocate(device_, in_bytes, "a function's inputs");
}

KernelFault* DeviceIo::device_fault() const {
  return static_cast<KernelFault*>(at(device_in_, fault_offset_));
}

void* DeviceIo::constant(const Tensor& value) {
  auto& place = constants_[&value];
  if (place == nullptr) {
    place = backend_.allocate(device_, value.bytes(), "a function's constants");
    if (value.bytes() > 0)
      backend_.copy_from_host(device_, value.raw(), place->data, value.bytes());
  }
  return place->data;
}

void DeviceIo::send(std::span<const Tensor> feeds, const StepInfo& info) {
  StepInfo for_kernels = info;
  for_kernels.communicator = nullptr;
  const KernelFault none;
  std::memcpy(host_in_->data, &for_kernels, sizeof(for_kernels));
  std::memcpy(at(host_in_, fault_offset_), &none, sizeof(none));
  size_t unsent = 0;  // the block up to here has been handed over
  for (size_t i = 0; i < feeds.size(); ++i) {
    const size_t bytes = feeds[i].bytes();
    if (bytes == 0) continue;
    if (const void* copy = fetched(feeds[i], device_)) {
      send_block(unsent, feeds_[i]);
      stream_->copy_within_device(copy, feed(i), bytes);
      unsent = feeds_[i] + aligned_size(bytes);
    } else {
      std::memcpy(at(host_in_, feeds_[i]), feeds[i].raw(), bytes);
    }
  }
  send_block(unsent, host_in_->bytes);
}

// The bytes [begin, end) of what goes to the device.
void DeviceIo::send_block(size_t begin, size_t end) {
  if (begin < end) stream_->copy_from_host(at(host_in_, begin), at(device_in_, begin), end - begin);
}

void DeviceIo::fetch(const std::vector<const void*>& sources) {
  stream_->copy_to_host(device_fault(), host_out_->data, sizeof(KernelFault));
  for (size_t i = 0; i < sources.size(); ++i)
    if (result_bytes_[i] > 0)
      stream_->copy_to_host(sources[i], at(host_out_, results_[i]), result_bytes_[i]);
}

}  // namespace cohort
