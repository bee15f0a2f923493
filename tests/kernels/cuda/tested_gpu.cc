#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/kernels/cpu/tested_device.h"

namespace cohort::testing {
namespace {

// Each test of the program is skipped, for a reason, where there is no GPU.
class NeedsGpu : public ::testing::EmptyTestEventListener {
 public:
  void OnTestStart(const ::testing::TestInfo&) override {
    if (!missing_gpu_reason().empty()) GTEST_SKIP() << "no GPU: " << missing_gpu_reason();
  }
};

// Kernels are loaded before a stream records: loading one meanwhile is not allowed.
const bool kPrepared = [] {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ::testing::UnitTest::GetInstance()->listeners().Append(new NeedsGpu);
  return true;
}();

}  // namespace

Device tested_device() { return {DeviceType::kGpu, 0}; }

}  // namespace cohort::testing
