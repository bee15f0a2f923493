#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/kernels/cpu/tested_device.h"

namespace cohort::testing {
namespace {

// All tests of the program are skipped, for a reason, where there is no GPU.
class NeedsGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!missing_gpu_reason().empty()) GTEST_SKIP() << "no GPU: " << missing_gpu_reason();
  }
};

// Kernels are loaded before a stream records: loading one meanwhile is not allowed.
const auto* const kEnvironment = [] {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  return ::testing::AddGlobalTestEnvironment(new NeedsGpu);
}();

}  // namespace

Device tested_device() { return {DeviceType::kGpu, 0}; }

}  // namespace cohort::testing
