#include "core/base/cores.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sched.h>
#include <string>

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "core/base/start_threads.h"
#include "core/base/temporary_folder.h"

namespace cohort {
namespace {

// What a system with these files says.
std::optional<int> cores_with(const std::map<std::string, std::string>& files) {
  const TemporaryFolder root("cores");
  for (const auto& [path, text] : files) {
    const std::string file = root.path() + "/" + path;
    create_folders(file.substr(0, file.rfind('/')));
    std::ofstream(file) << text;
  }
  return cores_of_control_groups(root.path());
}

std::optional<int> cores_of_version_2(const std::string& cpu_max) {
  return cores_with({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", cpu_max}});
}

std::optional<int> cores_of_version_1(const std::string& quota, const std::string& period) {
  return cores_with(
      {{"proc/self/cgroup", "3:memory:/\n2:cpuacct,cpu:/docker/1f\n1:name=systemd:/\n"},
       {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota},
       {"sys/fs/cgroup/cpu/cpu.cfs_period_us", period}});
}

TEST(Cores, ThereIsAlwaysOne) { EXPECT_GE(available_cores(), 1); }

TEST(Cores, AreNotAllOnceAThreadHasBeenGivenOne) {
  if (available_cores() == 1) GTEST_SKIP() << "there is one";
  start_thread([] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    size_t first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_FALSE(may_use_every_core());
  }).join();
}

// A process that begins while OpenMP pins threads; what it finds is its exit code.
class PinnedProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ::setenv("OMP_PROC_BIND", "true", 1);
  }
  void TearDown() override { ::unsetenv("OMP_PROC_BIND"); }
  static int as_code(int cores) { return std::min(cores, 100); }
};

int cores_of_this_thread() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

int cores_of_a_new_thread() {
  int cores = 0;
  start_thread([&] { cores = cores_of_this_thread(); }).join();
  return cores;
}

TEST_F(PinnedProcess, HasAsManyCoresAsAnyOther) {
  EXPECT_EXIT(std::_Exit(as_code(available_cores())),
              ::testing::ExitedWithCode(as_code(available_cores())), "");
}

TEST_F(PinnedProcess, StartsThreadsOnAnyOfThem) {
  EXPECT_EXIT(std::_Exit(as_code(cores_of_a_new_thread())),
              ::testing::ExitedWithCode(as_code(cores_of_this_thread())), "");
}

TEST(Cores, OfAContainerAreThoseOfItsQuotaRoundedUp) {
  EXPECT_EQ(cores_of_version_2("200000 100000\n"), 2);
  EXPECT_EQ(cores_of_version_2("200001 100000\n"), 3);
  EXPECT_EQ(cores_of_version_2("1000 100000\n"), 1);
  EXPECT_EQ(cores_of_version_1("200000\n", "100000\n"), 2);
  EXPECT_EQ(cores_of_version_1("150000\n", "100000\n"), 2);
}

TEST(Cores, OfAGroupAreNoMoreThanThoseOfTheGroupsAround) {
  const auto nested = [](const std::string& outer, const std::string& inner) {
    return cores_with({{"proc/self/cgroup", "0::/job/task\n"},
                       {"sys/fs/cgroup/job/cpu.max", outer},
                       {"sys/fs/cgroup/job/task/cpu.max", inner}});
  };
  EXPECT_EQ(nested("400000 100000\n", "max 100000\n"), 4);
  EXPECT_EQ(nested("400000 100000\n", "100000 100000\n"), 1);
  EXPECT_EQ(nested("100000 100000\n", "400000 100000\n"), 1);
}

TEST(Cores, AreNotLimitedByWhatSaysNothing) {
  EXPECT_EQ(cores_with({}), std::nullopt);
  EXPECT_EQ(cores_with({{"proc/self/cgroup", "0::/\n"}}), std::nullopt);
  for (const char* text : {"max 100000\n", "", "\n", "200000", "200000 ", " 100000", "-1 100000\n",
                           "0 100000\n", "200000 0\n", "200000 -5\n", "2e5 100000\n",
                           "200000 100000x\n", "99999999999999999999999 100000\n"})
    EXPECT_EQ(cores_of_version_2(text), std::nullopt) << text;
  EXPECT_EQ(cores_of_version_2("9223372036854775807 1\n"), 2147483647);
  EXPECT_EQ(cores_of_version_1("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(cores_of_version_1("200000\n", ""), std::nullopt);
}

TEST(Cores, AreNotLimitedByAListOfGroupsThatIsNone) {
  const auto with_list = [](const std::string& list) {
    return cores_with({{"proc/self/cgroup", list},
                       {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
                       {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  };
  for (const std::string& list :
       {std::string("::\n"), std::string(":\n"), std::string("0\n:"),
        std::string("1:cpu:nowhere\n"), std::string("0::../../..\n"),
        "0::/" + std::string(100'000, '/') + "\n", std::string("\0\xff:cpu,:/\0\n", 11)})
    EXPECT_EQ(with_list(list), std::nullopt) << list.substr(0, 20);
}

}  // namespace
}  // namespace cohort
