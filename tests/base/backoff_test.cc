#include "core/base/backoff.h"

#include <chrono>

#include <gtest/gtest.h>

#include "tests/testing/eventually.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kLongerThanAwake{10};
constexpr microseconds kShortestSleep{50};

int pauses_within(Backoff& backoff, Clock::duration time) {
  int pauses = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < time; ++pauses) backoff.pause();
  return pauses;
}

// Others may have the core meanwhile; but who sleeps never looks so often.
TEST(Backoff, LooksMoreOftenAtFirstThanSleepsAllow) {
  constexpr milliseconds kTime{1};
  Backoff again;
  pauses_within(again, kLongerThanAwake);
  EXPECT_TRUE(testing::eventually([&] {
    Backoff first;
    again.reset();
    return pauses_within(first, kTime) > kTime / kShortestSleep &&
           pauses_within(again, kTime) > kTime / kShortestSleep;
  }));
}

TEST(Backoff, SleepsAfterAWhile) {
  Backoff backoff;
  pauses_within(backoff, kLongerThanAwake);
  const auto begin = Clock::now();
  backoff.pause();
  EXPECT_GE(Clock::now() - begin, kShortestSleep);
}

}  // namespace
}  // namespace cohort
