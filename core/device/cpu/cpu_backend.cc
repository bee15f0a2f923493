#include <cstring>

#include "core/device/backends.h"
#include "core/device/logical_cpus.h"

namespace cohort {
namespace {

class CpuBackend final : public DeviceBackend {
 public:
  int count() const override { return logical_cpus().count; }
  std::shared_ptr<Buffer> allocate(Device, size_t bytes) override {
    return allocate_host_buffer(bytes);
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
