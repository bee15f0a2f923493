// What tasks print under cohort-run: real processes of the real program.
#include <algorithm>
#include <csignal>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/temporary_folder.h"
#include "tests/strategies/cluster/launcher/launched.h"

namespace cohort::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST(LauncherOutput, IsPrefixedLineByLineOnItsOwnStream) {
  const Finished run =
      finish({.flags = {"--workers=2"},
              .actions = {"worker:0@print=one", "worker:0@complain=two", "worker:1@print=three",
                          "worker:1@print=", "worker:1@write=no end"},
              .environment = {{"OMP_NUM_THREADS", "1"}}});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(lines_of(run.output, ""), UnorderedElementsAre("[worker:0] one", "[worker:1] three",
                                                             "[worker:1] ", "[worker:1] no end"));
  EXPECT_EQ(run.output.back(), '\n');
  EXPECT_EQ(run.errors, "[worker:0] two\n");
}

TEST(LauncherOutput, IsShownAsItIsWithoutPrefixes) {
  const Finished run = finish({.flags = {"--workers=2", "--no_prefix"},
                               .actions = {"worker:0@print=one", "worker:1@write=no end"},
                               .on_terminal = true});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(lines_of(run.output, ""), IsSupersetOf({"one\r", "no end\r"}));
  EXPECT_THAT(run.output, Not(HasSubstr("[worker")));
}

TEST(LauncherOutput, IsShownOfThoseThatAreNamed) {
  const TemporaryFolder folder("launcher");
  Launched launched(
      {.flags = {"--workers=2", "--ps=2", "--show=worker:1,ps", "--log_dir=" + folder.path()},
       .actions = {"worker:0@write_long=3000000", "print=", "print=ready",
                   "worker:0@await_file=" + folder.path() + "/go", "worker:0@complain=so bad",
                   "worker:0@exit=3", "hang"}});
  for (const char* task : {"worker:1", "ps:0", "ps:1"})
    launched.wait_for_output(str("[", task, "] ready"));
  touch(folder.path() + "/go");
  EXPECT_EQ(launched.wait(), 3);
  EXPECT_THAT(launched.output() + launched.errors(), Not(HasSubstr("[worker:0]")));
  EXPECT_THAT(launched.errors(), HasSubstr("cohort-run:   | so bad\n"));
  EXPECT_GT(read_file(folder.path() + "/attempt-0/worker-0.stdout").size(), 3'000'000);
}

TEST(LauncherOutput, OfALauncherThatIsToBeQuietIsOnlyWhatHasFailed) {
  const std::vector<std::string> flags = {"--workers=2", "--quiet", "--restarts=1"};
  EXPECT_EQ(finish({.flags = flags, .actions = {"print=hello"}}).errors, "");
  const Finished run =
      finish({.flags = flags, .actions = {"worker:1@complain=so bad", "worker:1@exit=3", "hang"}});
  EXPECT_EQ(run.code, 3);
  const std::vector<std::string> lines = lines_of(run.errors, "cohort-run: ");
  EXPECT_THAT(lines, Each(AnyOf(StartsWith("failed: worker:1 (pid "), "  | so bad",
                                "then worker:0 was killed by SIGTERM (Terminated)")));
  EXPECT_EQ(lines.size(), 6) << run.errors << "three for each attempt";
}

TEST(LauncherOutput, MayBeAnyBytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::string expected = "[worker:0] " + bytes + "\n";
  expected.insert(expected.find('\n') + 1, "[worker:0] ");
  EXPECT_EQ(finish({.actions = {"write_binary"}}).output, expected);
}

TEST(LauncherOutput, MayHaveLongLines) {
  const Finished run = finish({.actions = {"write_long=1000000", "print=!"}});
  EXPECT_EQ(run.output, "[worker:0] " + std::string(1'000'000, 'z') + "!\n");
  // A line without end does not fill the memory.
  const Finished longer = finish({.actions = {"write_long=5000000"}});
  EXPECT_EQ(std::count(longer.output.begin(), longer.output.end(), 'z'), 5'000'000);
  EXPECT_GE(lines_of(longer.output, "[worker:0] ").size(), 4);
}

// Checks the lines that flooding tasks have printed to both streams.
void expect_floods(const std::string& text, int workers, int lines, bool output, bool errors) {
  size_t total = 0;
  for (int worker = 0; worker < workers; ++worker) {
    const std::string prefix = "[worker:" + std::to_string(worker) + "] ";
    std::vector<std::string> expected, expected_errors, found, found_errors;
    for (int i = 0; i < lines; ++i) {
      const std::string number = std::to_string(i);
      if (output) expected.push_back(number + " " + std::string(static_cast<size_t>(i % 97), 'x'));
      if (errors && i % 7 == 0) {
        expected_errors.push_back("e" + number + " " +
                                  std::string(static_cast<size_t>(i % 89), 'y'));
      }
    }
    for (const auto& line : lines_of(text, prefix))
      (line.starts_with("e") ? found_errors : found).push_back(line);
    EXPECT_TRUE(found == expected) << prefix << found.size() << " lines";
    EXPECT_TRUE(found_errors == expected_errors) << prefix << found_errors.size() << " lines";
    total += found.size() + found_errors.size();
  }
  EXPECT_EQ(lines_of(text, "").size(), total) << "lines of nobody";
}

TEST(LauncherOutput, LosesNothing) {
  const Finished run = finish({.flags = {"--workers=4"},
                               .actions = {"flood=20000"},
                               .environment = {{"OMP_NUM_THREADS", "1"}}});
  EXPECT_EQ(run.code, 0);
  expect_floods(run.output, 4, 20000, true, false);
  expect_floods(run.errors, 4, 20000, false, true);
}

TEST(LauncherOutput, KeepsLinesWholeWhenBothStreamsAreOneFile) {
  const Finished run = finish({.flags = {"--workers=3"},
                               .actions = {"flood=5000"},
                               .environment = {{"OMP_NUM_THREADS", "1"}},
                               .one_stream = true});
  EXPECT_EQ(run.code, 0);
  expect_floods(run.output, 3, 5000, true, true);
}

TEST(LauncherOutput, OfAFailedTaskIsComplete) {
  const Finished run = finish(
      {.flags = {"--workers=2"}, .actions = {"worker:1@flood=3000", "worker:1@exit=1", "hang"}});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(lines_of(run.output, "[worker:1] ").size(), 3000);
}

TEST(LauncherOutput, IsColouredOnTerminalsOnly) {
  const Launch launch = {.actions = {"print=hello"}, .on_terminal = true};
  EXPECT_EQ(finish(launch).output, "\033[36m[worker:0]\033[0m hello\r\n");
  Launch plain = launch;
  plain.environment = {{"NO_COLOR", "1"}};
  EXPECT_EQ(finish(plain).output, "[worker:0] hello\r\n");
}

TEST(LauncherOutput, ThatNobodyReadsEndsTheTasksAsItWouldWithoutLauncher) {
  Launched launched({.flags = {"--workers=2"}, .actions = {"flood=2000000000"}});
  launched.wait_for_output("[worker:1] 9 ");
  launched.stop_reading();
  EXPECT_EQ(launched.wait(), 128 + SIGPIPE);
  EXPECT_THAT(launched.errors(), HasSubstr("was killed by SIGPIPE"));
}

TEST(LauncherOutput, ThatADiskDoesNotTakeIsLostWhileTasksGoOnAndNoSuccess) {
  const Finished run = finish({.flags = {"--workers=2"},
                               .actions = {"flood=20000"},
                               .environment = {{"OMP_NUM_THREADS", "1"}},
                               .full_disk = true});
  EXPECT_EQ(run.code, exit_code(Code::kResourceExhausted));
  EXPECT_EQ(run.output, "");
  EXPECT_THAT(lines_of(run.errors, "cohort-run: "),
              ElementsAre("cannot write the standard output: No space left on device; what it does "
                          "not take is lost"));
}

TEST(LauncherOutput, OfBothStreamsThatADiskDoesNotTakeIsNoSuccess) {
  Launch launch = {.actions = {"print=42"}, .one_stream = true, .full_disk = true};
  EXPECT_EQ(finish(launch).code, exit_code(Code::kResourceExhausted));
  launch.actions.push_back("exit=3");
  EXPECT_EQ(finish(launch).code, 3) << "says more";
}

#if !defined(__SANITIZE_THREAD__)  // whose programs write a larger file when they start
TEST(LauncherOutput, ALogFileThatMayGrowNoFurtherEndsNothing) {
  const TemporaryFolder folder("launcher");
  const Finished run = finish({.flags = {"--log_dir=" + folder.path()},
                               .actions = {"flood=20000"},
                               .one_stream = true,
                               .longest_file = 8192});
  EXPECT_EQ(run.code, 0) << run.errors;
  const std::string path = folder.path() + "/attempt-0/worker-0.stdout";
  EXPECT_THAT(run.output, HasSubstr("cohort-run: cannot write " + path + " any more"));
  EXPECT_EQ(read_file(path).size(), 8192);
  EXPECT_THAT(run.output, HasSubstr("[worker:0] 19999 "));
}

TEST(LauncherOutput, HoldsNoLineAboutALogFileThatMayGrowNoFurther) {
  const TemporaryFolder folder("launcher");
  const Finished run = finish({.flags = {"--log_dir=" + folder.path(), "--no_prefix", "--quiet"},
                               .actions = {"print=12345678", "print=9"},
                               .longest_file = 8});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.output, "12345678\n9\n");
  EXPECT_THAT(lines_of(run.errors, "cohort-run: cannot write "), SizeIs(1));
}
#endif

// What a task does at its limit is its own decision.
TEST(LauncherOutput, TasksFindLimitsOfFilesAsTheyAreWithoutLauncher) {
  const TemporaryFolder folder("launcher");
  const Finished run = finish({.flags = {},
                               .actions = {"-c", "echo 12345 > " + folder.path() + "/file"},
                               .longest_file = 0,
                               .program = "/bin/sh"});
  EXPECT_EQ(run.code, 128 + SIGXFSZ) << run.errors;
}

TEST(LauncherOutput, MayWaitForItsReaderWhileSignalsDoNot) {
  Launched launched({.flags = {"--workers=2"}, .actions = {"flood=2000000000"}});
  launched.wait_until_output_waits();
  launched.send(SIGTERM);
  launched.wait_for_errors("passing SIGTERM on to worker:0, worker:1");
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
}

TEST(LauncherOutput, ThatIsNeverReadIsLostWhenTheTimeIsOver) {
  for (const char* end : {"hang", "exit=0"}) {
    SCOPED_TRACE(end);
    Launched launched(
        {.flags = {"--timeout=0.5", "--grace=0.2"}, .actions = {"write_long=900000", end}});
    launched.wait_for_end_of_errors();
    EXPECT_EQ(launched.wait(), exit_code(Code::kDeadlineExceeded));
    EXPECT_THAT(launched.errors(),
                HasSubstr("cohort-run: cannot write the standard output: nobody reads it"));
  }
}

TEST(LauncherOutput, GoesToLogFilesToo) {
  const TemporaryFolder scratch("launcher");
  const std::string folder = scratch.path() + "/new/logs";
  const Finished run = finish({.flags = {"--workers=2", "--restarts=1", "--log_dir=" + folder},
                               .actions = {"show=COHORT_RESTART_COUNT", "worker:1@complain=oh",
                                           "worker:1@write=x", "worker:1@fail_before_restart=1"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(read_file(folder + "/attempt-0/worker-1.stdout"), "COHORT_RESTART_COUNT=0\nx");
  EXPECT_EQ(read_file(folder + "/attempt-0/worker-1.stderr"), "oh\n");
  EXPECT_EQ(read_file(folder + "/attempt-1/worker-0.stdout"), "COHORT_RESTART_COUNT=1\n");
  EXPECT_EQ(read_file(folder + "/attempt-1/worker-0.stderr"), "");
}

TEST(LauncherOutput, GoesOnWithoutLogFilesThatCannotBeHadAtARestart) {
  const TemporaryFolder folder("launcher");
  const std::string place = folder.path() + "/attempt-1";
  touch(place);  // a file where the folder is to be
  const Finished run = finish({.flags = {"--restarts=1", "--log_dir=" + folder.path(), "--quiet"},
                               .actions = {"fail_before_restart=1", "print=trained"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("cohort-run: cannot create the folder " + place));
  EXPECT_THAT(run.errors, HasSubstr("; going on without this log\n"));
  EXPECT_EQ(run.output, "[worker:0] trained\n");

  const Finished first = finish({.flags = {"--log_dir=" + place}, .actions = {"print=trained"}});
  EXPECT_NE(first.code, 0) << "nothing is lost yet by an error";
  EXPECT_EQ(first.output, "");
}

TEST(LauncherOutput, OfATaskThatIsStartedAgainAloneGoesOnInItsLogFile) {
  const TemporaryFolder folder("launcher");
  const Finished run = finish(
      {.flags = {"--ps=1", "--task_restarts=1", "--log_dir=" + folder.path()},
       .actions = {"ps@hang", "show=COHORT_TASK_RESTART_COUNT", "fail_before_task_restart=1"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(read_file(folder.path() + "/attempt-0/worker-0.stdout"),
            "COHORT_TASK_RESTART_COUNT=0\nCOHORT_TASK_RESTART_COUNT=1\n");
}

// Also where a task of the first is started again alone after the second has come.
TEST(LauncherOutput, OfTwoJobsWithTheSameLogFilesIsNotMixed) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/attempt-0/worker-0.stdout";
  Launched first({.flags = {"--ps=1", "--task_restarts=1", "--log_dir=" + folder.path()},
                  .actions = {"ps@hang", "print=first", "await_file=" + folder.path() + "/go",
                              "fail_before_task_restart=1"}});
  first.wait_for_output("first");
  const std::string kept = folder.path() + "/kept";
  ASSERT_EQ(link(path.c_str(), kept.c_str()), 0);
  EXPECT_EQ(finish({.flags = {"--log_dir=" + folder.path()}, .actions = {"print=second"}}).code, 0);
  touch(folder.path() + "/go");
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(read_file(path), "second\n");
  EXPECT_EQ(read_file(kept), "first\nfirst\n");
}

TEST(LauncherOutput, IsLoggedEvenIfNobodyElseReadsIt) {
  const TemporaryFolder folder("launcher");
  Launched launched({.flags = {"--log_dir=" + folder.path()},
                     .actions = {"print=first", "await_file=" + folder.path() + "/go",
                                 "flood=10000", "print=last"}});
  launched.wait_for_output("first");
  launched.stop_reading();
  touch(folder.path() + "/go");
  EXPECT_EQ(launched.wait(), 0) << launched.errors();
  EXPECT_THAT(read_file(folder.path() + "/attempt-0/worker-0.stdout"),
              ::testing::EndsWith("last\n"));
}

}  // namespace
}  // namespace cohort::testing
