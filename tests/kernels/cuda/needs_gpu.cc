#include <gtest/gtest.h>

#include "core/device/device.h"

// Each test of a program with this is skipped, for a reason, where there is no GPU.
namespace cohort::testing {
namespace {

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
}  // namespace cohort::testing
