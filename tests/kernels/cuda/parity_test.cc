#include <algorithm>

#include <gtest/gtest.h>

#include "core/kernels/kernel.h"
#include "core/kernels/registry.h"

// Which ops the CPU has and the GPU has not. Plans on GPUs run them on the host. The list may only
// become shorter: an op that has got a kernel is taken off it.
namespace cohort {
namespace {

const std::vector<std::string> kKnownGaps = {"Barrier"};

TEST(GpuKernels, ExistForEveryOpButTheKnownGaps) {
  const auto on_gpu = ops_with_kernel(DeviceType::kGpu);
  if (on_gpu.empty()) GTEST_SKIP() << "this build has no CUDA; build with --config=cuda";
  std::vector<std::string> gaps;
  for (const std::string& op : ops_with_kernel(DeviceType::kCpu))
    if (!has_kernel(op, DeviceType::kGpu)) gaps.push_back(op);
  EXPECT_EQ(gaps, kKnownGaps);
}

TEST(GpuKernels, ExistForNoOpThatTheCpuHasNot) {
  for (const std::string& op : ops_with_kernel(DeviceType::kGpu))
    EXPECT_TRUE(has_kernel(op, DeviceType::kCpu)) << op;
}

}  // namespace
}  // namespace cohort
