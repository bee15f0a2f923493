#include "strategies/parameter_server/push_counts.h"

#include <gtest/gtest.h>

namespace cohort::testing {
namespace {

// A worker may say anything of its pushes, as often as it likes.
TEST(PushCounts, HaveABoundedSizeAndLoseNoPush) {
  PushCounts all;
  for (int64_t message = 0; message < 100; ++message) {
    PushCounts said;
    for (int64_t i = 0; i < 1000; ++i) said.staleness[1000 * message + i] = 2;
    said.staleness[-1 - message] = 1;
    all.add(said);
  }
  EXPECT_EQ(all.staleness.size(), 65536u);
  EXPECT_EQ(all.staleness.begin()->first, 0);
  EXPECT_EQ(all.staleness.rbegin()->first, 65535);
  int64_t pushes = 0;
  for (const auto& [staleness, times] : all.staleness) pushes += times;
  EXPECT_EQ(pushes, 2 * 100'000 + 100);
}

}  // namespace
}  // namespace cohort::testing
