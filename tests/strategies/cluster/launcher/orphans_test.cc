// What tasks of cohort-run leave behind ends with it. Launched checks that nothing is left.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/temporary_folder.h"
#include "tests/strategies/cluster/launcher/launched.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LauncherOrphans, AreEndedWithTheRun) {
  EXPECT_EQ(finish({.flags = {"--workers=2", "--grace=0.1"},
                    .actions = {"leave_child", "leave_child=daemon"}})
                .code,
            0);
  EXPECT_EQ(finish({.flags = {"--workers=2", "--grace=0.1"},
                    .actions = {"leave_child", "leave_child=daemon", "worker:1@exit=4", "hang"}})
                .code,
            4);
}

// As of a program that has put itself into the background, which would seem to have succeeded.
TEST(LauncherOrphans, AreWarnedOfWhereTheirTaskHasEndedWell) {
  for (const char* kind : {"leave_child", "leave_child=daemon", "leave_child=family"}) {
    const Finished run = finish({.flags = {"--workers=2", "--ps=1", "--grace=0.1", "--quiet"},
                                 .actions = {"ps@hang", std::string("worker:1@") + kind}});
    EXPECT_EQ(run.code, 0);
    const auto warnings = lines_of(
        run.errors, "cohort-run: worker:1 has ended with 0 and left processes behind, such as ");
    ASSERT_EQ(warnings.size(), 1) << run.errors;
    EXPECT_THAT(warnings[0], StartsWith("actor (pid "));
    EXPECT_THAT(warnings[0], HasSubstr("setsid --wait"));
    EXPECT_EQ(lines_of(run.errors, "").size(), 1) << run.errors;
  }
}

// Shown by one of a few runs, as the machine may be busy.
TEST(LauncherOrphans, AreNotWarnedOfWhereTheyEndByThemselves) {
  bool is_quiet = false;
  for (int i = 0; i < 5 && !is_quiet; ++i) {
    const TemporaryFolder folder("launcher");
    const Finished run = finish(
        {.flags = {"--quiet"},
         .actions = {"-c", "mkfifo \"$0\"; cat \"$0\" & exec 3> \"$0\"", folder.path() + "/pipe"},
         .program = "/bin/sh"});
    EXPECT_EQ(run.code, 0) << run.errors;
    is_quiet = run.errors.empty();
  }
  EXPECT_TRUE(is_quiet);
}

TEST(LauncherOrphans, AreAskedToEndWhenTheirParentsHave) {
  for (const int code : {0, 4}) {
    const Finished run =
        finish({.flags = {"--workers=2", "--ps=1", "--grace=1000"},
                .actions = {"leave_child=family", "ps@hang", "exit=" + std::to_string(code)}});
    EXPECT_EQ(run.code, code) << run.errors;
  }
}

// Or it could not save what it has: a second request ends many a program at once.
TEST(LauncherOrphans, AreAskedToEndOnceWhereTheirGroupHasBeen) {
  const TemporaryFolder folder("launcher");
  const std::string go = folder.path() + "/go";
  Launched launched({.flags = {"--grace=1000"},
                     .actions = {"-c", "\"$0\" handle_signals print=ready await_file=" + go + "; :",
                                 std::getenv("ACTOR")},
                     .program = "/bin/sh"});
  launched.wait_for_output("ready");
  const pid_t supervisor = supervisor_of(launched);
  const std::vector<pid_t> shell = children_of(supervisor);
  ASSERT_EQ(shell.size(), 1);
  const std::vector<pid_t> actor = children_of(shell[0]);
  launched.send(SIGTERM);
  EXPECT_TRUE(eventually([&] { return children_of(supervisor) == actor; }));
  touch(go);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM) << launched.errors();
  EXPECT_THAT(lines_of(launched.output(), "[worker:0] "), ElementsAre("ready", "got SIGTERM"));
}

TEST(LauncherOrphans, AreEndedWhenTheLauncherIsKilled) {
  Launched launched(
      {.flags = {"--workers=3"},
       .actions = {"leave_child", "leave_child=daemon", "handle_signals", "print=ready", "hang"}});
  launched.wait_for_output("ready", 3);
  launched.send(SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  launched.wait_until_nothing_is_left();
}

TEST(LauncherOrphans, AreEndedWhenTheLauncherIsKilledWhileAllIsStopped) {
  Launched launched({.flags = {"--workers=2"},
                     .actions = {"leave_child=daemon", "print=ready", "hang"},
                     .is_job = true});
  launched.wait_for_output("ready", 2);
  const std::vector<pid_t> all = processes_of(launched);
  launched.send(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return std::ranges::all_of(all, is_stopped); }));
  launched.send(SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  launched.wait_until_nothing_is_left();
}

TEST(LauncherOrphans, AreEndedWhenTheSupervisorIsKilled) {
  Launched launched(
      {.flags = {"--workers=3"},
       .actions = {"leave_child", "leave_child=daemon", "handle_signals", "print=ready", "hang"}});
  launched.wait_for_output("ready", 3);
  kill(supervisor_of(launched), SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  EXPECT_THAT(launched.errors(), HasSubstr("the supervisor was killed by SIGKILL"));
}

// By which pkill and killall choose processes.
std::string name_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

TEST(LauncherOrphans, AreEndedWhenTheLauncherIsKilledByName) {
  Launched launched(
      {.flags = {"--workers=2"}, .actions = {"leave_child=daemon", "print=ready", "hang"}});
  launched.wait_for_output("ready", 2);
  const pid_t guard = launched.pid(), supervisor = supervisor_of(launched);
  EXPECT_TRUE(eventually([&] { return name_of(guard) == "cohort-guard"; }));
  const std::string name = name_of(supervisor);
  for (const pid_t pid : {guard, supervisor})
    if (name_of(pid) == name) kill(pid, SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  launched.wait_until_nothing_is_left();
}

}  // namespace
}  // namespace cohort::testing
