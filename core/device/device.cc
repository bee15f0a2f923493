#include "core/device/device.h"

#include <algorithm>
#include <charconv>
#include <ostream>

#include "core/base/comma_separated.h"
#include "core/device/backends.h"
#include "core/device/logical_cpus.h"

namespace cohort {
namespace {

std::string_view type_name(DeviceType type) { return type == DeviceType::kCpu ? "cpu" : "gpu"; }

DeviceBackend*& replaced_gpu_backend() {
  static DeviceBackend* backend = nullptr;
  return backend;
}

// Null where this build has none.
DeviceBackend* find_backend(DeviceType type) {
  if (type == DeviceType::kCpu) return cpu_backend();
  return replaced_gpu_backend() != nullptr ? replaced_gpu_backend() : cuda_backend();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, Device device) {
  return out << type_name(device.type) << ':' << device.index;
}

Device parse_device(std::string_view text) {
  const size_t colon = text.find(':');
  std::string type(text.substr(0, colon));
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  Device device;
  bool good = type == "cpu" || type == "gpu";
  if (type == "gpu") device.type = DeviceType::kGpu;
  if (colon != std::string_view::npos) {
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, device.index);
    good = good && parsed.ec == std::errc() && parsed.ptr == end && device.index >= 0;
  }
  if (!good) invalid("\"", text, "\" is not a device; write cpu:N or gpu:N");
  return device;
}

std::vector<Device> list_devices() {
  std::vector<Device> devices;
  for (DeviceType type : {DeviceType::kCpu, DeviceType::kGpu}) {
    const DeviceBackend* backend = find_backend(type);
    for (int i = 0; backend != nullptr && i < backend->count(); ++i) devices.push_back({type, i});
  }
  return devices;
}

int device_threads(Device device) {
  auto devices = list_devices();
  if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
    constexpr size_t kMostShown = 8;  // those of the type that is asked for first
    std::stable_partition(devices.begin(), devices.end(),
                          [&](Device other) { return other.type == device.type; });
    const std::string no_gpu = device.type == DeviceType::kGpu ? missing_gpu_reason() : "";
    fail(Code::kNotFound, "there is no device ", device, "; this process has ",
         comma_separated(devices, {}, kMostShown),
         no_gpu.empty() ? str(" (set_logical_", type_name(device.type), "s makes more)")
                        : str(" (no GPU: ", no_gpu, ")"));
  }
  return device.type == DeviceType::kCpu ? logical_cpus().threads_each : 1;
}

void set_logical_gpus(const std::vector<LogicalGpu>& gpus) { set_cuda_logical_gpus(gpus); }

std::string missing_gpu_reason() {
  return replaced_gpu_backend() != nullptr ? "" : missing_cuda_reason();
}

void replace_gpu_backend(DeviceBackend* backend) { replaced_gpu_backend() = backend; }

DeviceBackend& device_backend(DeviceType type) {
  DeviceBackend* backend = find_backend(type);
  if (backend == nullptr)
    fail(Code::kUnimplemented, "there are no ", type_name(type),
         " devices: ", missing_gpu_reason());
  return *backend;
}

Tensor allocate_tensor(Device device, const TensorSpec& spec, std::string_view purpose) {
  return Tensor(spec.dtype, spec.shape,
                device_backend(device.type).allocate(device, spec.bytes(), purpose));
}

}  // namespace cohort
