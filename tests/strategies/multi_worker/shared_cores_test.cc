#include "strategies/multi_worker/shared_cores.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(SharedCores, AreWarnedOfWhereTasksHaveMoreThreadsTogether) {
  EXPECT_EQ(
      warning_of_shared_cores(4, 16, 16),
      "warning: 4 tasks on this host share 16 cores, and each computes with 16 threads, which "
      "take turns: set OMP_NUM_THREADS=4 for all, or have the launcher give each task cores "
      "of its own");
  EXPECT_NE(warning_of_shared_cores(4, 5, 16), "");
  EXPECT_NE(warning_of_shared_cores(4, 2, 2), "");
}

TEST(SharedCores, AreNotWhereTheySufficeOrFewerThreadsCannotHelp) {
  EXPECT_EQ(warning_of_shared_cores(1, 16, 16), "");
  EXPECT_EQ(warning_of_shared_cores(1, 4, 2), "");
  EXPECT_EQ(warning_of_shared_cores(4, 4, 16), "");
  EXPECT_EQ(warning_of_shared_cores(4, 1, 2), "");
}

}  // namespace
}  // namespace cohort
