#include "core/device/device.h"

#include <algorithm>
#include <charconv>
#include <ostream>

#include "core/device/backends.h"
#include "core/device/logical_cpus.h"

namespace cohort {
namespace {

std::string_view type_name(DeviceType type) { return type == DeviceType::kCpu ? "cpu" : "gpu"; }

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
    DeviceBackend* backend = type == DeviceType::kCpu ? cpu_backend() : cuda_backend();
    for (int i = 0; backend != nullptr && i < backend->count(); ++i) devices.push_back({type, i});
  }
  return devices;
}

int device_threads(Device device) {
  const auto devices = list_devices();
  if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
    std::string known;
    for (Device d : devices) known += str(known.empty() ? "" : ", ", d);
    fail(Code::kNotFound, "there is no device ", device, "; this process has ", known,
         " (set_logical_cpus(n) makes more)");
  }
  return device.type == DeviceType::kCpu ? logical_cpus().threads_each : 1;
}

DeviceBackend& device_backend(DeviceType type) {
  DeviceBackend* backend = type == DeviceType::kCpu ? cpu_backend() : cuda_backend();
  if (backend == nullptr)
    fail(Code::kUnimplemented, "this build has no ", type_name(type),
         " devices; build with --config=cuda");
  return *backend;
}

}  // namespace cohort
