#include "strategies/cluster/launcher/restart_pause.h"

#include <gtest/gtest.h>

namespace cohort::launcher {
namespace {

using std::chrono::seconds;

TEST(RestartPauseTest, GrowsWithFailuresThatComeSoonAndBeginsAnewAfterAnAttemptThatLasted) {
  RestartPause pause;
  for (int round = 0; round < 2; ++round) {
    for (const int distance : {0, 1, 2, 4, 8, 16, 30, 30})
      EXPECT_EQ(pause.after(seconds(0)), seconds(distance));
    EXPECT_EQ(pause.after(seconds(5)), seconds(25));
    EXPECT_EQ(pause.after(seconds(30)), seconds(0));
    EXPECT_EQ(pause.after(seconds(5)), seconds(0)) << "it lasted longer than a pause of 1 s";
    EXPECT_EQ(pause.after(seconds(40)), seconds(0));
    EXPECT_EQ(pause.after(seconds(0)), seconds(1));
    pause = {};
  }
}

}  // namespace
}  // namespace cohort::launcher
