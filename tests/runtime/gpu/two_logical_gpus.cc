#include "core/device/device.h"
#include "tests/runtime/gpu/two_gpus.h"

namespace cohort::testing {

std::string make_two_gpus(size_t memory_limit) {
  if (std::string reason = missing_gpu_reason(); !reason.empty()) return "no GPU: " + reason;
  const LogicalGpu half{.card = 0, .memory_limit = memory_limit};
  set_logical_gpus({half, half});
  return "";
}

}  // namespace cohort::testing
