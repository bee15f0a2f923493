#include "core/device/device_fetcher.h"

#include <algorithm>
#include <cstring>

namespace cohort {
namespace {

constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kLanes = 2;

const char* bytes_of(const void* memory) { return static_cast<const char*>(memory); }

// Keeps the memory of a tensor that was fetched, and by its type tells that it was.
struct Fetched {
  std::shared_ptr<Buffer> host, on_device;
  Device device;
  const char *begin, *end;  // on the host
  const char* copy;         // of what begins there

  void operator()(const Buffer* buffer) const { delete buffer; }
};

Tensor with_copy(const Tensor& tensor, Device device, const std::shared_ptr<Buffer>& on_device,
                 size_t offset) {
  const std::shared_ptr<Buffer>& host = tensor.buffer();
  const char* begin = bytes_of(tensor.raw());
  const Fetched keeper{
      host, on_device, device, begin, begin + tensor.bytes(), bytes_of(on_device->data) + offset};
  return {tensor.dtype(), tensor.shape(), std::shared_ptr<Buffer>(new Buffer(*host), keeper),
          static_cast<size_t>(begin - bytes_of(host->data))};
}

}  // namespace

// Memory that the device takes pieces from, and the stream on which it does.
struct DeviceFetcher::Lane {
  explicit Lane(Device device)
      : stream(device_backend(device.type).make_stream(device)),
        staged(device_backend(device.type).allocate_staging(device, kPiece)) {}

  const std::unique_ptr<Stream> stream;
  const std::shared_ptr<Buffer> staged;
};

DeviceFetcher::DeviceFetcher(Device device) : device_(device) {
  COHORT_CHECK(!device_backend(device.type).shares_host_memory());
  for (size_t i = 0; i < kLanes; ++i) lanes_.push_back(std::make_unique<Lane>(device));
}

DeviceFetcher::~DeviceFetcher() = default;

std::vector<Tensor> DeviceFetcher::fetch(std::vector<Tensor> tensors) {
  size_t total = 0;
  for (const Tensor& tensor : tensors) total += aligned_size(tensor.bytes());
  const auto on_device =
      device_backend(device_.type).allocate(device_, total, "a batch ahead of its step");
  size_t offset = 0;
  for (Tensor& tensor : tensors) {
    if (tensor.bytes() == 0) continue;
    copy(tensor.raw(), static_cast<char*>(on_device->data) + offset, tensor.bytes());
    tensor = with_copy(tensor, device_, on_device, offset);
    offset += aligned_size(tensor.bytes());
  }
  for (const auto& lane : lanes_) lane->stream->synchronize();
  return tensors;
}

void DeviceFetcher::copy(const void* source, void* target, size_t bytes) {
  for (size_t done = 0; done < bytes; done += kPiece) {
    const size_t piece = std::min(kPiece, bytes - done);
    const Lane& lane = *lanes_[turn_++ % lanes_.size()];
    lane.stream->synchronize();  // the piece before has left
    std::memcpy(lane.staged->data, bytes_of(source) + done, piece);
    lane.stream->copy_from_host(lane.staged->data, static_cast<char*>(target) + done, piece);
  }
}

const void* fetched(const Tensor& tensor, Device device) {
  const auto* found = std::get_deleter<Fetched>(tensor.buffer());
  if (found == nullptr || found->device != device) return nullptr;
  const char* at = bytes_of(tensor.raw());
  if (at < found->begin || at + tensor.bytes() > found->end) return nullptr;
  return found->copy + (at - found->begin);
}

}  // namespace cohort
