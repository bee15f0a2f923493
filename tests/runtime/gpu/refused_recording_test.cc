#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "core/device/simulated/simulated_gpus.h"
#include "core/ops/math_ops.h"
#include "core/runtime/plan.h"
#include "tests/runtime/gpu/two_gpus.h"
#include "tests/runtime/trace.h"

// Steps of a device that refuses recordings, which only simulated ones can be told to do.
namespace cohort {
namespace {

struct RefusedRecordings {
  RefusedRecordings() { simulated::refuse_recordings(true); }
  ~RefusedRecordings() { simulated::refuse_recordings(false); }
};

TEST(RefusedRecording, IsSaidOnceAndStepsGoOnWithout) {
  ASSERT_EQ(testing::make_two_gpus(128 << 20), "");
  const RefusedRecordings refused;
  const auto traced =
      trace({{DType::kFloat32, {2}}}, [](auto& x) { return std::vector<Value>{x[0] + 1.0}; });
  Plan plan(traced, {.device = {DeviceType::kGpu, 0}});
  EXPECT_TRUE(plan.stats().recorded);
  ::testing::internal::CaptureStderr();
  for (int run = 1; run <= 4; ++run) {
    const auto x = static_cast<float>(run);
    const Tensor y = plan.run(std::vector<Tensor>{Tensor::from<float>({x, -x}, {2})}, {})[0];
    EXPECT_EQ(y.data<float>()[0], x + 1) << "run " << run;
    EXPECT_EQ(y.data<float>()[1], 1 - x) << "run " << run;
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_FALSE(plan.stats().recorded);
  EXPECT_NE(said.find("cannot be recorded: INTERNAL: gpu:0: the recording was refused"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("warning"), said.rfind("warning")) << said;
}

// Which wait for the device while kernels are prepared.
TEST(RefusedRecording, IsNotDueToPlansOfOtherThreads) {
  ASSERT_EQ(testing::make_two_gpus(128 << 20), "");
  constexpr int kPlans = 30, kProducts = 32;
  std::atomic<int> refused = 0;
  const auto run_plans = [&] {
    const auto traced = trace({{DType::kFloat32, {2, 2}}}, [](auto& x) {
      Value y = x[0];
      for (int i = 0; i < kProducts; ++i) y = ops::matmul(y, x[0]);
      return std::vector<Value>{y};
    });
    const std::vector<Tensor> feeds = {Tensor::full(DType::kFloat32, {2, 2}, 0.5)};
    for (int i = 0; i < kPlans; ++i) {
      Plan plan(traced, {.device = {DeviceType::kGpu, 0}});
      for (int run = 0; run < 2; ++run) plan.run(feeds, {});
      if (!plan.stats().recorded) ++refused;
    }
  };
  {
    const std::jthread other(run_plans);
    run_plans();
  }
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace cohort
