#include "strategies/collective/nccl/host_name.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cohort {
namespace {

std::string name_of_this_machine() {
  char name[256] = "";
  EXPECT_EQ(gethostname(name, sizeof(name) - 1), 0);
  return name;
}

std::string number_of_this_boot() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  EXPECT_NE(boot, "");
  return boot;
}

void expect_this_machine() {
  const NcclHostName host = nccl_host_name();
  EXPECT_EQ(host.name, name_of_this_machine());
  EXPECT_EQ(host.boot, number_of_this_boot());
}

TEST(NcclHostName, IsWhatNcclTellsHostsApartBy) {
  unsetenv("NCCL_HOSTID");
  expect_this_machine();
  setenv("NCCL_HOSTID", "rank-1", 1);
  EXPECT_EQ(nccl_host_name().name, "rank-1") << "ranks with ids of their own may share a card";
  EXPECT_EQ(nccl_host_name().boot, "");
  setenv("NCCL_HOSTID", "", 1);
  expect_this_machine();
  unsetenv("NCCL_HOSTID");
}

}  // namespace
}  // namespace cohort
