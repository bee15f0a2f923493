#include "core/base/time_limits.h"

#include <limits>

#include <gtest/gtest.h>

namespace cohort {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kYear = std::chrono::hours(24 * 365);

TEST(TimeLimits, AreBetweenNothingAndAYear) {
  EXPECT_EQ(clamped(milliseconds(7)), milliseconds(7));
  EXPECT_EQ(clamped(milliseconds(-1)), milliseconds(0));
  EXPECT_EQ(clamped(milliseconds::min()), milliseconds(0));
  EXPECT_EQ(clamped(milliseconds::max()), kYear);
  EXPECT_GT(std::chrono::steady_clock::now() + kYear, std::chrono::steady_clock::now());
}

TEST(TimeLimits, InSecondsAreRoundedUp) {
  EXPECT_EQ(clamped_seconds(1.5), milliseconds(1500));
  EXPECT_EQ(clamped_seconds(1e-9), milliseconds(1));
  EXPECT_EQ(clamped_seconds(-1e300), milliseconds(0));
  for (const double forever : {1e300, std::numeric_limits<double>::infinity()})
    EXPECT_EQ(clamped_seconds(forever), kYear);
}

}  // namespace
}  // namespace cohort
