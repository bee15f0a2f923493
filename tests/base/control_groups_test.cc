#include "core/base/control_groups.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/file.h"
#include "core/base/temporary_folder.h"

namespace cohort {
namespace {

TEST(ControlGroups, AreThoseOfBothVersionsFromTheOwnOneUpwards) {
  const TemporaryFolder root("groups");
  create_folders(root.path() + "/proc/self");
  std::ofstream(root.path() + "/proc/self/cgroup")
      << "3:memory:/job\n2:cpuacct,cpu:/a:b\n0::/job/task\n";
  const std::string mounts = root.path() + "/sys/fs/cgroup";
  EXPECT_THAT(control_groups("memory", root.path()),
              ::testing::ElementsAre(mounts + "/memory/job", mounts + "/memory",
                                     mounts + "/job/task", mounts + "/job", mounts));
  EXPECT_THAT(control_groups("cpu", root.path()),
              ::testing::IsSupersetOf({mounts + "/cpu/a:b", mounts + "/job/task"}));
}

}  // namespace
}  // namespace cohort
