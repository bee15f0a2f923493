#include "strategies/collective/nccl/host_name.h"

#include <cstdlib>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(NcclHostName, IsWhatNcclTellsHostsApartBy) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  unsetenv("NCCL_HOSTID");
  EXPECT_EQ(nccl_host_name(), name);
  setenv("NCCL_HOSTID", "rank-1", 1);
  EXPECT_EQ(nccl_host_name(), "rank-1") << "ranks with ids of their own may share a card";
  setenv("NCCL_HOSTID", "", 1);
  EXPECT_EQ(nccl_host_name(), name);
  unsetenv("NCCL_HOSTID");
}

}  // namespace
}  // namespace cohort
