#include "strategies/cluster/launcher/memory_kills.h"

#include <fstream>

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "core/base/temporary_folder.h"

namespace cohort::launcher {
namespace {

// A system whose files the test writes.
class MemoryKillsTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::string file = root_.path() + path;
    create_folders(file.substr(0, file.rfind('/')));
    std::ofstream(file) << text;
  }
  void write_events(const std::string& group, int refusals, int kills) {
    write("/sys/fs/cgroup" + group + "/memory.events", "low 0\nhigh 9\nmax 9\noom " +
                                                           std::to_string(refusals) +
                                                           "\noom_kill " + std::to_string(kills));
  }

  const TemporaryFolder root_{"memory"};
};

TEST_F(MemoryKillsTest, AreThoseOfTheOwnGroupSinceCountingBegan) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "90000000\n");
  write_events("/job", 5, 3);
  MemoryKills kills(root_.path());
  EXPECT_EQ(kills.explain_next(), "");
  write_events("/job", 6, 5);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(kills.explain_next(), "its control group was out of memory (limit 90000000 bytes)");
  EXPECT_EQ(kills.explain_next(), "") << "each is told of once";
}

TEST_F(MemoryKillsTest, NameTheLimitOfTheGroupThatHadNoMoreMemory) {
  write("/proc/self/cgroup", "0::/job/task/part\n");  // of which the innermost has no files
  write("/sys/fs/cgroup/job/memory.max", "7000\n");
  write("/sys/fs/cgroup/job/task/memory.max", "max\n");
  write_events("/job/task", 0, 0);
  write_events("/job", 0, 0);
  MemoryKills kills(root_.path());
  write_events("/job/task", 0, 1);
  write_events("/job", 1, 1);
  EXPECT_EQ(kills.explain_next(), "its control group was out of memory (limit 7000 bytes)");
}

TEST_F(MemoryKillsTest, AreCountedByVersion1Too) {
  write("/proc/self/cgroup", "4:memory:/docker/1f\n0::/\n");  // as a container's host has it
  const std::string group = "/sys/fs/cgroup/memory/";
  const auto write_counts = [&](const std::string& refusals, const std::string& kills) {
    write(group + "memory.failcnt", "2\n");
    write(group + "memory.memsw.failcnt", refusals);
    write(group + "memory.oom_control",
          "oom_kill_disable 0\nunder_oom 0\noom_kill " + kills + "\n");
  };
  write(group + "memory.limit_in_bytes", "4096\n");
  write_counts("2\n", "1");
  MemoryKills kills(root_.path());
  write_counts("3\n", "2");
  EXPECT_EQ(kills.explain_next(), "its control group was out of memory (limit 4096 bytes)");
}

TEST_F(MemoryKillsTest, MayBeForWantOfMemoryOnTheHost) {
  write("/proc/self/cgroup", "0::/job\n");
  write_events("/job", 1, 1);
  MemoryKills in_group(root_.path());
  write_events("/job", 1, 2);
  EXPECT_EQ(in_group.explain_next(), "the host was out of memory");

  write("/proc/self/cgroup", "0::/\n");
  write("/proc/vmstat", "pgfault 8\noom_kill 4\n");
  MemoryKills without_group(root_.path());
  EXPECT_EQ(without_group.explain_next(), "");
  write("/proc/vmstat", "pgfault 8\noom_kill 5\n");
  EXPECT_EQ(without_group.explain_next(), "the host was out of memory");
}

TEST_F(MemoryKillsTest, AreNoneWhereNothingCountsThem) {
  EXPECT_EQ(MemoryKills(root_.path()).explain_next(), "");
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.events", "oom_kill many\n");
  EXPECT_EQ(MemoryKills(root_.path()).explain_next(), "");
}

}  // namespace
}  // namespace cohort::launcher
