#include "strategies/parameter_server/said_lately.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort::testing {
namespace {

using parameter_server::SaidLately;
using std::chrono::seconds;

TEST(SaidLately, SaysTheSameOnceAMinuteHoweverOftenItComes) {
  SaidLately lately;
  const SaidLately::Time begin{};
  int said = 0;
  for (int second = 0; second < 180; ++second)
    said += lately.is_news("worker:1 is slow", begin + seconds(second));
  EXPECT_EQ(said, 3);
  EXPECT_TRUE(lately.is_news("worker:2 is slow", begin + seconds(179)));
}

TEST(SaidLately, RemembersABoundedNumber) {
  SaidLately lately;
  const SaidLately::Time begin{};
  int said = 0;
  for (int i = 0; i < 2000; ++i) said += lately.is_news(str("worker:", i), begin);
  EXPECT_EQ(said, 1000);
  EXPECT_TRUE(lately.is_news("worker:1999", begin + seconds(60)));
}

}  // namespace
}  // namespace cohort::testing
