// Steps that wait much are told of.
#include "core/train/bottleneck_watch.h"

#include <atomic>
#include <chrono>

#include <gmock/gmock.h>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::points;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// An epoch of steps of 0.1 s.
StepShares epoch_of(int64_t steps, double input, double communication) {
  return {.steps = steps,
          .seconds = 0.1,
          .input = input,
          .communication = communication,
          .compute = 1 - input - communication};
}

TEST(BottleneckWatch, SaysOnceWhatToDo) {
  BottleneckWatch input;
  EXPECT_EQ(input.add_epoch(0, epoch_of(100, 0.29, 0.3)), std::nullopt);
  EXPECT_THAT(input.add_epoch(1, epoch_of(100, 0.4, 0.35)).value(),
              AllOf(HasSubstr("warning: the steps of epoch 2 have spent 40 % of their time waiting "
                              "for input: "),
                    HasSubstr("num_parallel")));
  EXPECT_EQ(input.add_epoch(2, epoch_of(100, 0.4, 0.5)), std::nullopt);

  BottleneckWatch communication;
  EXPECT_THAT(communication.add_epoch(0, epoch_of(100, 0.4, 0.5)).value(),
              AllOf(HasSubstr("50 % of their time waiting for communication: "),
                    HasSubstr("bytes_per_pack")));
}

TEST(BottleneckWatch, SaysNothingOfLessThanASecond) {
  BottleneckWatch watch;
  EXPECT_EQ(watch.add_epoch(0, epoch_of(10, 0.9, 0)), std::nullopt);
  EXPECT_NE(watch.add_epoch(1, epoch_of(20, 0.9, 0)), std::nullopt);
}

// The second epoch is fast. Steps compete with what spins, and are not all of the first.
TEST(BottleneckWatch, IsHeardInFit) {
  std::atomic<int> made = 0;
  const auto slow_at_first = [&](const data::Element& element) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
    const bool is_slow = made++ < 80;
    while (is_slow && std::chrono::steady_clock::now() < end) {
    }
    return element;
  };
  ::testing::internal::CaptureStderr();
  classifier().fit(points(80).batch(1).map(slow_at_first),
                   {.epochs = 2, .verbose = Verbose::kSilent});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("warning: the steps of epoch 1 have spent [0-9]+ % of their time "
                           "waiting for input: .*\n"));
}

}  // namespace
}  // namespace cohort
