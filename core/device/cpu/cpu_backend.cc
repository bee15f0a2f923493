#include <cstring>

#include "core/device/backends.h"
#include "core/device/logical_cpus.h"

namespace cohort {
namespace {

class CpuBackend final : public DeviceBackend {
 public:
  int count() const override { return logical_cpus().count; }
  bool shares_host_memory() const override { return true; }
  std::shared_ptr<Buffer> allocate(Device, size_t bytes, std::string_view purpose) override {
    try {
      return allocate_host_buffer(bytes);
    } catch (const Error& error) {
      throw error.with_context(purpose);
    }
  }
  std::shared_ptr<Buffer> allocate_staging(Device, size_t bytes) override {
    return allocate_host_buffer(bytes);
  }
  std::unique_ptr<Stream> make_stream(Device device) override {
    fail(Code::kUnimplemented, device, " has no streams");
  }
  void copy_to_host(Device, const void* source, void* target, size_t bytes) override {
    std::memcpy(target, source, bytes);
  }
  void copy_from_host(Device, const void* source, void* target, size_t bytes) override {
    std::memcpy(target, source, bytes);
  }
};

}  // namespace

DeviceBackend* cpu_backend() {
  static CpuBackend backend;
  return &backend;
}

}  // namespace cohort
