#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/multi_worker/straggler_watch.h"
#include "tests/strategies/on_workers.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// The workers that are named in so many steps of these times.
std::vector<int> named(StragglerWatch& watch, int steps, const std::vector<int>& ms) {
  std::vector<std::chrono::nanoseconds> computed;
  for (const int time : ms) computed.push_back(milliseconds(time));
  std::vector<int> named;
  for (int i = 0; i < steps; ++i)
    if (const auto found = watch.add_step(computed)) named.push_back(found->worker);
  return named;
}

using Workers = std::vector<int>;

TEST(StragglerWatchTest, NamesAWorkerOnceWhenItHasBeenSlowForSomeSteps) {
  StragglerWatch watch;
  EXPECT_EQ(named(watch, StragglerWatch::kSteps - 1, {20, 200, 20}), Workers());
  EXPECT_EQ(named(watch, 1, {20, 200, 20}), Workers{1});
  EXPECT_EQ(named(watch, 100, {20, 200, 20}), Workers());
  EXPECT_EQ(named(watch, 1, {20, 20, 20}), Workers()) << "it has caught up";
  EXPECT_EQ(named(watch, StragglerWatch::kSteps, {20, 200, 20}), Workers{1});
}

TEST(StragglerWatchTest, NamesTheSlowerOneOfTwo) {
  StragglerWatch watch;
  EXPECT_EQ(named(watch, StragglerWatch::kSteps, {500, 50}), Workers{0});
}

TEST(StragglerWatchTest, NamesEveryOneOfSeveral) {
  StragglerWatch watch;
  EXPECT_EQ(named(watch, StragglerWatch::kSteps + 1, {9, 90, 9, 90, 9}), (Workers{1, 3}));
}

TEST(StragglerWatchTest, NamesNobodyForLittle) {
  StragglerWatch watch;
  EXPECT_EQ(named(watch, 50, {1, 9, 1}), Workers()) << "within the noise of a machine";
  EXPECT_EQ(named(watch, 50, {100, 190, 100}), Workers());
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(named(watch, 1, {20, i % 2 == 0 ? 200 : 20, 20}), Workers()) << "not in a row";
}

TEST(StragglerTest, IsNamedByTheChiefWithin20Steps) {
  ::testing::internal::CaptureStderr();
  on_good_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    const auto step = strategy.function(
        [](Value x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
    for (int i = 0; i < 20; ++i) {
      if (strategy.workers().rank() == 2) std::this_thread::sleep_for(milliseconds(60));
      strategy.run(step, 1.0f);
    }
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("warning: all workers wait for worker:2, the slowest for 10 steps: before "
                        "step "));
}

}  // namespace
}  // namespace cohort::testing
