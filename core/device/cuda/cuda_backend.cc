#include <algorithm>
#include <cuda_runtime_api.h>

#include "core/device/backends.h"
#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/cuda_stream.h"
#include "core/device/cuda/gpus.h"
#include "core/device/memory_ledger.h"

namespace cohort {
namespace {

class CudaBackend final : public DeviceBackend {
 public:
  int count() const override { return Gpus::instance().count(); }
  bool shares_host_memory() const override { return false; }

  std::shared_ptr<Buffer> allocate(Device device, size_t bytes, std::string_view purpose) override {
    return Gpus::instance().use(device).allocate(bytes, purpose);
  }

  std::shared_ptr<Buffer> allocate_staging(Device device, size_t bytes) override {
    const Gpu& gpu = Gpus::instance().use(device);
    gpu.enter();
    void* data = nullptr;
    try {
      COHORT_CUDA(device, cudaMallocHost(&data, std::max<size_t>(bytes, 1)));
    } catch (const Error& error) {
      throw error.with_context(format_bytes(bytes) + " of host memory for copies");
    }
    return {new Buffer{data, bytes}, [card = gpu.card()](Buffer* buffer) {
              cudaSetDevice(card);  // else a new thread would take card 0 into use
              cudaFreeHost(buffer->data);
              delete buffer;
            }};
  }

  std::unique_ptr<Stream> make_stream(Device device) override { return make_cuda_stream(device); }

  void copy_to_host(Device device, const void* source, void* target, size_t bytes) override {
    Gpus::instance().use(device).copy(source, target, bytes, cudaMemcpyDeviceToHost);
  }
  void copy_from_host(Device device, const void* source, void* target, size_t bytes) override {
    Gpus::instance().use(device).copy(source, target, bytes, cudaMemcpyHostToDevice);
  }
};

}  // namespace

DeviceBackend* cuda_backend() {
  static auto* backend = new CudaBackend;
  return backend;
}

std::string missing_cuda_reason() { return Gpus::instance().missing_reason(); }

void set_cuda_logical_gpus(const std::vector<LogicalGpu>& gpus) { Gpus::instance().divide(gpus); }

}  // namespace cohort
