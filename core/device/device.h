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
// before the first function is compiled: kernels are prepared for a number of threads. Less than
// one device, more than the library can name, or fewer than 0 threads are kInvalidArgument.
// Thread-safe.
void set_logical_cpus(int count, int threads_each = 0);

// One logical GPU: a share of the memory of a physical one, its card.
struct LogicalGpu {
  int card = 0;             // as CUDA numbers them, after CUDA_VISIBLE_DEVICES
  size_t memory_limit = 0;  // bytes; 0: no limit but what the card has
};
// Makes gpu:0 .. gpu:n-1 of the given logical GPUs, several of which may share a card; by default
// every card is one. Cards that are not named are never touched. Call it before the first GPU is
// used (kFailedPrecondition); a card that does not exist is kNotFound, with the reason where there
// is none.
void set_logical_gpus(const std::vector<LogicalGpu>& gpus);
// Why this process has no GPU ("the NVIDIA driver shows no card"); empty where it has one.
std::string missing_gpu_reason();

// All devices of this process, CPUs first.
std::vector<Device> list_devices();
// Threads that kernels of a CPU device run on. Unknown devices throw kNotFound listing the known
// ones.
int device_threads(Device device);

// Steps handed over while a stream recorded, to be done again as they are: the same kernels on the
// same addresses.
class Recording {
 public:
  virtual ~Recording() = default;
};

// Work that a device does behind the host's back, in the order in which it was handed over. One
// thread at a time. Host memory of a copy must stay until the stream has passed it; memory from
// DeviceBackend::allocate_staging is copied without the host's help. What fails on the device is
// thrown by a later call, at the latest by `synchronize`.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device device() const = 0;
  virtual void copy_from_host(const void* source, void* target, size_t bytes) = 0;
  virtual void copy_to_host(const void* source, void* target, size_t bytes) = 0;
  virtual void copy_within_device(const void* source, void* target, size_t bytes) = 0;
  // Waits until everything that was handed over is done.
  virtual void synchronize() = 0;
  // Until `end_recording`, work is recorded instead of done, and `synchronize` is not allowed.
  virtual void begin_recording() = 0;
  virtual std::unique_ptr<Recording> end_recording() = 0;
  virtual void replay(Recording& recording) = 0;
  // The device library's own stream (cudaStream_t), for its kernels.
  virtual void* native() = 0;
};

// What the runtime needs from a kind of device. One implementation for each type: device/cpu,
// device/cuda. Thread-safe.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual int count() const = 0;
  // Whether the host reads and writes the devices' memory as its own. Kernels of such devices run
  // on the calling thread; those of others on a stream.
  virtual bool shares_host_memory() const = 0;
  // Uninitialised memory on `device`, aligned to kBufferAlignment, for `purpose` ("variable
  // \"w\""). kResourceExhausted says what was asked for, by whom, and who holds the rest.
  virtual std::shared_ptr<Buffer> allocate(Device device, size_t bytes,
                                           std::string_view purpose) = 0;
  // Host memory that `device` itself copies from and to.
  virtual std::shared_ptr<Buffer> allocate_staging(Device device, size_t bytes) = 0;
  // kUnimplemented where memory is the host's.
  virtual std::unique_ptr<Stream> make_stream(Device device) = 0;
  // Copies between this device and host memory, complete on return. Not ordered with streams.
  virtual void copy_to_host(Device device, const void* source, void* target, size_t bytes) = 0;
  virtual void copy_from_host(Device device, const void* source, void* target, size_t bytes) = 0;
};

// The backend of a device type; kUnimplemented with the reason where this build has none.
DeviceBackend& device_backend(DeviceType type);

// Uninitialised memory on `device` for a tensor of `spec`, as DeviceBackend::allocate. Where the
// host does not share it, the tensor's shape and address are of use, and its elements are reached
// by copies alone.
Tensor allocate_tensor(Device device, const TensorSpec& spec, std::string_view purpose);

}  // namespace cohort
