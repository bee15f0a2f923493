#include <dlfcn.h>

#include "core/base/error.h"
#include "core/device/device.h"
#include "tests/runtime/gpu/two_gpus.h"

namespace cohort::testing {

std::string make_two_gpus(size_t memory_limit) {
  if (std::string reason = missing_gpu_reason(); !reason.empty()) return "no GPU: " + reason;
  const LogicalGpu half{.card = 0, .memory_limit = memory_limit};
  set_logical_gpus({half, half});
  return "";
}

// By the driver, which CUDA's runtime has no question for.
std::optional<bool> first_card_in_use() {
  if (!missing_gpu_reason().empty()) return std::nullopt;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  COHORT_CHECK(driver != nullptr);
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_state =
      reinterpret_cast<int (*)(int, unsigned*, int*)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = 0;
  COHORT_CHECK(init(0) == 0 && get_state(0, &flags, &active) == 0);
  return active != 0;
}

}  // namespace cohort::testing
