#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/multi_worker/step_times.h"
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

// What a worker has sent to the others, each in so many milliseconds, by rank.
StepTimes sent(const std::vector<int>& ms, milliseconds computed = {}) {
  std::map<std::string, std::chrono::nanoseconds> times;
  std::vector<std::string> names;
  for (const int time : ms) {
    names.push_back(str("worker:", names.size()));
    if (time >= 0) times[names.back()] = milliseconds(time);
  }
  StepTimes worker{.computed = computed};
  worker.set_sent(times, names);
  return worker;
}
constexpr int kSelf = -1;

using Times = std::vector<std::chrono::nanoseconds>;

TEST(NetworkTimesTest, AreLongWhereAllThatAWorkerSendsIsSlow) {
  EXPECT_EQ(network_times(
                std::vector{sent({kSelf, 1, 90}), sent({2, kSelf, 3}), sent({400, 300, kSelf})}),
            (Times{milliseconds(1), milliseconds(2), milliseconds(300)}));
}

TEST(NetworkTimesTest, AreLongWhereAllThatIsSentToAWorkerIsSlow) {
  EXPECT_EQ(
      network_times(std::vector{sent({kSelf, 1, 500}), sent({2, kSelf, 400}), sent({3, 4, kSelf})}),
      (Times{milliseconds(1), milliseconds(2), milliseconds(400)}));
}

TEST(NetworkTimesTest, BlameNeitherOfTwoForWhatIsBetweenThem) {
  EXPECT_EQ(
      network_times(std::vector{sent({kSelf, 400, 1}), sent({400, kSelf, 1}), sent({2, 2, kSelf})}),
      (Times{milliseconds(2), milliseconds(1), milliseconds(2)}));
  EXPECT_EQ(network_times(std::vector{sent({kSelf, 400}), sent({1, kSelf})}), Times(2));
}

TEST(NetworkTimesTest, CountAsFarAsTheyAreLongerThanAnybodyComputes) {
  const milliseconds computed(250);
  EXPECT_EQ(network_times(std::vector{sent({kSelf, 1, 9}, computed), sent({2, kSelf, 9}),
                                      sent({400, 300, kSelf})}),
            (Times{computed, computed, milliseconds(300)}));
}

TEST(NetworkTimesTest, AreNotOfRanksThatThereAreNot) {
  EXPECT_EQ(network_times(std::vector(3, StepTimes{.longest_to = 3, .longest = milliseconds(1)})),
            Times(3));
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
