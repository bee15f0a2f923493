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

const bool kPrepared = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new NeedsGpu);
  return true;
}();

}  // namespace

Device tested_device() { return {DeviceType::kGpu, 0}; }

}  // namespace cohort::testing
