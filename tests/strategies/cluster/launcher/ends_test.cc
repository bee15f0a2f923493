// How cohort-run ends, and how it begins again: real processes of the real program.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/temporary_folder.h"
#include "tests/strategies/cluster/launcher/launched.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// Ends.

TEST(LauncherEnd, OfTheTrainersIsThatOfAllOthers) {
  const Finished run = finish({.flags = {"--workers=2", "--ps=2", "--evaluator"},
                               .actions = {"ps@hang", "evaluator@hang", "print=done"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(lines_of(run.output, "").size(), 2);
  EXPECT_THAT(run.errors, Not(HasSubstr("failed")));
}

TEST(LauncherEnd, OfTheChiefIsThatOfTheWorkersAfterTheGrace) {
  const Finished run =
      finish({.flags = {"--chief", "--workers=2", "--ps=1", "--grace=0.1"},
              .actions = {"chief@call=worker:0", "chief@call=worker:1", "chief@exit=0",
                          "handle_signals=9", "worker@serve=inherited", "hang"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.errors,
              HasSubstr("chief:0 has finished; worker:0, worker:1, ps:0 may take 0.1 s to end"));
  EXPECT_THAT(run.output, HasSubstr("[worker:0] got SIGTERM"));
  EXPECT_THAT(run.output, HasSubstr("[worker:1] got SIGTERM"));
}

TEST(LauncherEnd, OfTheChiefLeavesTheWorkersTimeToFinish) {
  const TemporaryFolder folder("launcher");
  Launched launched(
      {.flags = {"--chief", "--workers=1"},
       .actions = {"chief@exit=0", "await_file=" + folder.path() + "/go", "print=finished"}});
  launched.wait_for_errors("chief:0 has finished");
  touch(folder.path() + "/go");
  EXPECT_EQ(launched.wait(), 0) << launched.errors();
  EXPECT_EQ(launched.output(), "[worker:0] finished\n");
}

TEST(LauncherEnd, IsAwaitedAloudOnceOthersHaveFinished) {
  Launched launched({.flags = {"--workers=2"}, .actions = {"print=ready", "worker:1@hang"}});
  launched.wait_for_output("ready", 2);
  const pid_t supervisor = supervisor_of(launched);
  EXPECT_TRUE(eventually([&] { return children_of(supervisor).size() == 1; }));
  kill(children_of(supervisor)[0], SIGSTOP);
  launched.wait_for_errors(
      "others have finished; waiting for worker:1 (stopped; SIGCONT lets it go on)\n");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
}

TEST(LauncherEnd, OfAServerWithZeroIsSaidWhereWorkersGoOn) {
  Launched launched(
      {.flags = {"--workers=2", "--ps=2", "--quiet"}, .actions = {"ps:1@exit=0", "hang"}});
  launched.wait_for_errors(
      "cohort-run: ps:1 ended with 0 before worker:0, worker:1: unless these need no parameter "
      "server any more, the program does not serve where its task is ps (run_parameter_server)");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
}

TEST(LauncherEnd, OfAServerWithZeroIsNoFailure) {
  const TemporaryFolder folder("launcher");
  const std::string go = folder.path() + "/go";
  Launched launched({.flags = {"--workers=1", "--ps=1"},
                     .actions = {"ps@print=done", "ps@exit=0", "await_file=" + go}});
  launched.wait_for_output("done");
  touch(go);
  EXPECT_EQ(launched.wait(), 0) << launched.errors();
  EXPECT_THAT(launched.errors(), Not(HasSubstr("ended with 0 before")));
}

TEST(LauncherEnd, IsTheFirstFailure) {
  for (const char* who : {"worker:1", "ps:0", "evaluator:0", "chief:0"}) {
    SCOPED_TRACE(who);
    const std::string failing = std::string(who) + "@";
    const Finished run = finish({.flags = {"--workers=2", "--ps=1", "--chief", "--evaluator"},
                                 .actions = {failing + "print=so far", failing + "complain=so bad",
                                             failing + "exit=7", "hang"}});
    EXPECT_EQ(run.code, 7);
    EXPECT_THAT(run.errors, HasSubstr(std::string(who) + " exited with code 7; ending "));
    EXPECT_THAT(run.errors, HasSubstr("cohort-run: failed: " + std::string(who) + " (pid "));
    EXPECT_THAT(lines_of(run.errors, "cohort-run:   | "), UnorderedElementsAre("so far", "so bad"));
    const auto ended = lines_of(run.errors, "cohort-run: then ");
    EXPECT_EQ(ended.size(), 4);
    for (const auto& line : ended) EXPECT_THAT(line, HasSubstr("was killed by SIGTERM"));
  }
}

// Of two workers: worker:1 ends with `code`, and worker:0, which led it and handles signals, does
// what `end` says, for which it needs until cohort-run has said `moment`.
Finished finish_after_another(Code code, const std::string& moment, const std::string& end) {
  const TemporaryFolder folder("launcher");
  Launched launched(
      {.flags = {"--workers=2"},
       .actions = {"worker:1@await_file=" + folder.path() + "/ready",
                   "worker:1@exit=" + std::to_string(exit_code(code)), "handle_signals",
                   "print=ready", "await_file=" + folder.path() + "/late", "complain=why", end}});
  launched.wait_for_output("ready");
  touch(folder.path() + "/ready");
  launched.wait_for_errors(moment);
  touch(folder.path() + "/late");
  const int ended_with = launched.wait();
  return {ended_with, launched.output(), launched.errors()};
}

constexpr char kGivenTime[] = "; worker:0 may take 3 s to end\n",
               kAskedToEnd[] = "cohort-run: ending worker:0\n";

TEST(LauncherEnd, IsTheDeathThatOthersNoticedSooner) {
  for (const char* moment : {kGivenTime, kAskedToEnd}) {
    const Finished run =
        finish_after_another(Code::kUnavailable, moment, "raise=" + std::to_string(SIGKILL));
    EXPECT_EQ(run.code, 128 + SIGKILL);
    EXPECT_THAT(run.errors, HasSubstr("failed: worker:0"));
    EXPECT_THAT(run.errors, HasSubstr("then worker:1 exited with code 24"));
  }
}

TEST(LauncherEnd, IsTheErrorThatOthersWereToldOf) {
  for (const char* moment : {kGivenTime, kAskedToEnd}) {
    const Finished run = finish_after_another(Code::kAborted, moment, "exit=7");
    EXPECT_EQ(run.code, 7);
    EXPECT_THAT(run.errors, HasSubstr("failed: worker:0"));
    EXPECT_THAT(run.errors, HasSubstr("then worker:1 exited with code 20"));
  }
}

// Whoever has an error may say so after those that were told of it have ended: the leader of a job
// waits until they have heard. It is not asked to end before it could.
TEST(LauncherEnd, LeavesTheOneAtFaultTimeToSayWhy) {
  for (const Code code : {Code::kAborted, Code::kUnavailable}) {
    const Finished run = finish_after_another(code, kGivenTime, "exit=15");
    EXPECT_EQ(run.code, 15);
    EXPECT_EQ(run.output, "[worker:0] ready\n") << "it got a signal";
    EXPECT_THAT(lines_of(run.errors, "cohort-run:   | "), ElementsAre("ready", "why"));
  }
}

// Which tells whoever started cohort-run to start it again.
TEST(LauncherEnd, IsTheWishToBeResumedWhoeverMissesThatTaskSooner) {
  for (const Code code : {Code::kAborted, Code::kUnavailable}) {
    const Finished run = finish_after_another(code, kGivenTime, "exit=42");
    EXPECT_EQ(run.code, 42);
    EXPECT_THAT(run.errors, HasSubstr("failed: worker:0"));

    const TemporaryFolder folder("launcher");
    Launched launched({.flags = {"--workers=2"},
                       .actions = {"worker:0@exit=42", "await_file=" + folder.path() + "/go",
                                   "exit=" + std::to_string(exit_code(code))}});
    launched.wait_for_errors("(resumable); worker:1 may take 30 s to end");
    touch(folder.path() + "/go");
    EXPECT_EQ(launched.wait(), 42) << launched.errors();
  }
}

TEST(LauncherEnd, IsNoWishToBeResumedOfATaskThatWasAskedToEnd) {
  const Finished run = finish_after_another(Code::kAborted, kAskedToEnd, "exit=42");
  EXPECT_EQ(run.code, exit_code(Code::kAborted));
}

// Shown by one of a few runs, as the machine may be busy.
TEST(LauncherEnd, IsNotPutOffForATaskThatIsStopped) {
  const std::string code = std::to_string(exit_code(Code::kUnavailable));
  bool came_at_once = false;
  for (int i = 0; i < 5 && !came_at_once; ++i) {
    const TemporaryFolder folder("launcher");
    Launched launched({.flags = {"--workers=2", "--grace=1000"},
                       .actions = {"worker:1@raise=" + std::to_string(SIGSTOP),
                                   "await_file=" + folder.path() + "/go", "exit=" + code}});
    EXPECT_TRUE(eventually([&] {
      const std::vector<pid_t> all = processes_of(launched);
      return std::ranges::any_of(all, is_stopped);
    }));
    const auto began = std::chrono::steady_clock::now();
    touch(folder.path() + "/go");
    EXPECT_EQ(std::to_string(launched.wait()), code) << launched.errors();
    EXPECT_THAT(launched.errors(), HasSubstr("then worker:1 was killed by SIGTERM"));
    came_at_once = std::chrono::steady_clock::now() - began < std::chrono::seconds(2);
  }
  EXPECT_TRUE(came_at_once);
}

TEST(LauncherEnd, NamesSignals) {
  for (const auto& [signal, name] : {std::pair{SIGUSR1, "SIGUSR1"}, {SIGKILL, "SIGKILL"}}) {
    const Finished run = finish({.flags = {"--workers=2"},
                                 .actions = {"worker:0@raise=" + std::to_string(signal), "hang"}});
    EXPECT_EQ(run.code, 128 + signal);
    EXPECT_THAT(run.errors, HasSubstr("worker:0 was killed by " + std::string(name)));
    EXPECT_THAT(run.errors, HasSubstr("; nothing that it printed has arrived"));
  }
}

TEST(LauncherEnd, ShowsTheLastLinesFitForATerminal) {
  std::vector<std::string> actions;
  for (int i = 0; i < 20; ++i) actions.push_back("print=line " + std::to_string(i));
  actions.insert(actions.end(), {"write_long=2000", "print=", "write=\033[31mred\a", "exit=1"});
  const Finished run = finish({.actions = actions});
  const auto lines = lines_of(run.errors, "cohort-run:   | ");
  ASSERT_EQ(lines.size(), 10);
  EXPECT_EQ(lines[0], "line 12");
  EXPECT_EQ(lines[8], std::string(500, 'z') + "...");
  EXPECT_EQ(lines[9], "?[31mred?");
}

TEST(LauncherEnd, KillsAfterTheGraceWhatDoesNotEnd) {
  const Finished run = finish({.flags = {"--workers=3", "--grace=0.2"},
                               .actions = {"worker:0@handle_signals=0", "worker:1@handle_signals",
                                           "worker:2@call=worker:0", "worker:2@call=worker:1",
                                           "worker:2@exit=5", "serve=inherited", "hang", "hang"}});
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.errors, HasSubstr("killing worker:1, 0.2 s after asking it to end"));
  EXPECT_THAT(run.errors, HasSubstr("then worker:0 exited with code 0"));
  EXPECT_THAT(run.errors, HasSubstr("then worker:1 was killed by SIGKILL"));
}

// Signals.

TEST(LauncherSignal, IsPassedOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const std::string name = std::string("SIG") + sigabbrev_np(signal);
    SCOPED_TRACE(name);
    Launched launched({.flags = {"--workers=2", "--restarts=3"},
                       .actions = {"handle_signals=5", "print=ready", "hang"}});
    launched.wait_for_output("ready", 2);
    launched.send(signal);
    EXPECT_EQ(launched.wait(), 5);
    for (const char* task : {"[worker:0] ", "[worker:1] "}) {
      EXPECT_THAT(lines_of(launched.output(), task), ElementsAre("ready", "got " + name));
    }
    EXPECT_THAT(launched.errors(), HasSubstr("passing " + name + " on to worker:0, worker:1"));
    EXPECT_THAT(launched.errors(), Not(HasSubstr("restarting")));
  }
}

// As where all processes of a job get it: from whoever sent it, and from the guard.
TEST(LauncherSignal, SentToTheGuardAndTheSupervisorIsPassedOnOnce) {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) {
    const std::string name = std::string("SIG") + sigabbrev_np(signal);
    SCOPED_TRACE(name);
    const TemporaryFolder folder("launcher");
    Launched launched({.flags = {"--workers=2", "--grace=1000"},
                       .actions = {"handle_signals", "print=ready",
                                   "await_file=" + folder.path() + "/go", "exit=5"}});
    launched.wait_for_output("ready", 2);
    kill(supervisor_of(launched), signal);
    launched.send(signal);
    launched.wait_for_output("got " + name, 2);
    launched.send(SIGTERM);  // as the greatest of them it is taken last
    launched.wait_for_output("got SIGTERM", 2);
    touch(folder.path() + "/go");
    EXPECT_EQ(launched.wait(), 5) << launched.errors();
    for (const char* task : {"[worker:0] ", "[worker:1] "}) {
      EXPECT_THAT(lines_of(launched.output(), task),
                  ElementsAre("ready", "got " + name, "got SIGTERM"));
    }
  }
}

TEST(LauncherSignal, EndsAFrozenTask) {
  Launched launched({.flags = {"--grace=1000"}, .actions = {"print=ready", "hang"}});
  launched.wait_for_output("ready");
  const auto tasks = children_of(supervisor_of(launched));
  ASSERT_EQ(tasks.size(), 1);
  kill(tasks[0], SIGSTOP);
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
}

// As Ctrl-Z and fg of a shell do.
TEST(LauncherSignal, StopsAllTogetherUntilTheJobIsContinued) {
  Launched launched({.flags = {"--workers=2"}, .actions = {"print=ready", "hang"}, .is_job = true});
  launched.wait_for_output("ready", 2);
  const std::vector<pid_t> all = processes_of(launched);
  ASSERT_EQ(all.size(), 4);
  for (int round = 0; round < 2; ++round) {
    launched.send(SIGTSTP);
    EXPECT_TRUE(eventually([&] { return std::ranges::all_of(all, is_stopped); }));
    launched.send(SIGCONT);
    EXPECT_TRUE(eventually([&] { return std::ranges::none_of(all, is_stopped); }));
  }
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
}

// As a script does that does not look whether it has stopped yet.
TEST(LauncherSignal, GoesOnWhereTheJobIsContinuedWhileItStops) {
  Launched launched({.flags = {"--workers=6"}, .actions = {"print=ready", "hang"}, .is_job = true});
  launched.wait_for_output("ready", 6);
  const std::vector<pid_t> all = processes_of(launched);
  ASSERT_EQ(all.size(), 8);
  const pid_t supervisor = all[1];
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (int round = 0; round < 20; ++round) {
    launched.send(SIGTSTP);
    while (!is_stopped(supervisor)) ASSERT_LT(std::chrono::steady_clock::now(), end);  // awake
    launched.send(SIGCONT);
    ASSERT_TRUE(eventually([&] { return std::ranges::none_of(all, is_stopped); })) << round;
  }
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
}

// A shell that ends while it has stopped jobs.
TEST(LauncherSignal, ComesToAStoppedJobThatIsContinued) {
  Launched launched({.flags = {"--workers=2"},
                     .actions = {"handle_signals=5", "print=ready", "hang"},
                     .is_job = true});
  launched.wait_for_output("ready", 2);
  const std::vector<pid_t> all = processes_of(launched);
  launched.send(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return std::ranges::all_of(all, is_stopped); }));
  launched.send(SIGHUP);
  launched.send(SIGCONT);
  EXPECT_EQ(launched.wait(), 5) << launched.errors();
}

TEST(LauncherSignal, ThatTasksHandleWellIsASuccess) {
  Launched launched(
      {.flags = {"--workers=2"}, .actions = {"handle_signals=0", "print=ready", "hang"}});
  launched.wait_for_output("ready", 2);
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 0);
}

TEST(LauncherSignal, GivesTheExitCodeOfASignal) {
  Launched launched({.flags = {"--workers=2"}, .actions = {"print=ready", "hang"}});
  launched.wait_for_output("ready", 2);
  launched.send(SIGINT);
  EXPECT_EQ(launched.wait(), 128 + SIGINT);
}

TEST(LauncherSignal, TellsWhoWantsToBeResumedFromThoseItKilled) {
  Launched launched({.flags = {"--workers=2", "--ps=1"},
                     .actions = {"worker@handle_signals=42", "print=ready", "hang"}});
  launched.wait_for_output("ready", 3);
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 42) << launched.errors();
}

TEST(LauncherSignal, SentAgainLaterAsInterruptKills) {
  Launched launched({.flags = {"--workers=2", "--grace=1000"},
                     .actions = {"handle_signals", "print=ready", "hang", "hang"}});
  launched.wait_for_output("ready", 2);
  launched.send(SIGINT);
  launched.wait_for_output("got SIGINT", 2);
  launched.send_until_errors(SIGINT, "interrupted again; killing worker:0, worker:1");
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
}

TEST(LauncherSignal, KillsAfterTheGrace) {
  Launched launched(
      {.flags = {"--grace=0.1"}, .actions = {"handle_signals", "print=ready", "hang"}});
  launched.wait_for_output("ready");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
}

TEST(LauncherSignal, StaysIgnoredUnderNohup) {
  Launched launched({.actions = {"print=ready", "hang"}, .ignored_signal = SIGHUP});
  launched.wait_for_output("ready");
  launched.send(SIGHUP);
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 128 + SIGTERM);
  EXPECT_THAT(launched.errors(), Not(HasSubstr("SIGHUP")));
}

TEST(LauncherSignal, ArrivesThoughAShellHadItIgnored) {
  Launched launched({.actions = {"print=ready", "hang"}, .ignored_signal = SIGINT});
  launched.wait_for_output("ready");
  launched.send(SIGINT);
  EXPECT_EQ(launched.wait(), 128 + SIGINT);
}

// Restarts.

TEST(LauncherRestart, RepeatsAllTasksUntilTheySucceed) {
  const Finished run =
      finish({.flags = {"--workers=2", "--restarts=5"},
              .actions = {"worker:0@serve=inherited", "worker:1@show=COHORT_RESTART_COUNT",
                          "worker:1@show=TORCHELASTIC_RESTART_COUNT",
                          "worker:1@fail_before_restart=2", "worker:1@call=worker:0"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(lines_of(run.output, "[worker:1] COHORT_RESTART_COUNT="), ElementsAre("0", "1", "2"));
  EXPECT_THAT(lines_of(run.output, "[worker:1] TORCHELASTIC_RESTART_COUNT="),
              ElementsAre("0", "1", "2"));
  EXPECT_EQ(lines_of(run.errors, "cohort-run: then worker:0 was killed by SIGTERM").size(), 2);
  EXPECT_THAT(run.errors, HasSubstr("(restart 2 of 5)"));
  EXPECT_THAT(run.errors, HasSubstr("finished after 2 restarts"));
}

TEST(LauncherRestart, EndsWhenNoneIsLeft) {
  const Finished run = finish({.flags = {"--restarts=1"}, .actions = {"fail_before_restart=2"}});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.errors, HasSubstr("ended after 1 restart\n"));
  EXPECT_THAT(run.errors, Not(HasSubstr("restart 2")));
}

TEST(LauncherRestart, ThatCannotStartSaysWhatHappenedBefore) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/program";
  write_script(path, "#!/bin/sh\nrm -- \"$0\"\necho why\nexit 3\n");
  const Finished run = finish({.flags = {"--restarts=1"}, .program = path});
  EXPECT_EQ(run.code, 15);
  EXPECT_THAT(run.errors, HasSubstr("failed: worker:0 (pid "));
  EXPECT_THAT(run.errors, HasSubstr("cohort-run:   | why\n"));
  EXPECT_THAT(run.errors, HasSubstr("cannot run " + path));
}

TEST(LauncherRestart, WaitsLongerAndLongerUntilASignal) {
  Launched launched({.flags = {"--restarts=1000"}, .actions = {"exit=3"}});
  launched.wait_for_errors("s (restart 3 of 1000)");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 3);
  EXPECT_THAT(launched.errors(), HasSubstr("ended after 2 restarts"));
}

TEST(LauncherRestart, WaitsForAllToSaveWhenOneAsksToBeResumed) {
  const TemporaryFolder folder("launcher");
  Launched launched({.flags = {"--workers=2", "--ps=1", "--restarts=1"},
                     .actions = {"ps@hang", "worker:0@exit=42", "handle_signals=1",
                                 "await_file=" + folder.path() + "/go", "print=saved", "exit=42"}});
  launched.wait_for_errors(
      "worker:0 exited with code 42 (resumable); worker:1, ps:0 may take 30 s to end");
  touch(folder.path() + "/go");
  EXPECT_EQ(launched.wait(), 42);
  EXPECT_THAT(lines_of(launched.output(), "[worker:1] "), ElementsAre("saved", "saved"));
  EXPECT_THAT(launched.errors(), HasSubstr("restarting all tasks (restart 1 of 1)"));
}

TEST(LauncherRestart, BlamesAFailureRatherThanThoseItLedToAskForResumption) {
  const TemporaryFolder folder("launcher");
  Launched launched({.flags = {"--workers=3"},
                     .actions = {"worker:0@exit=42", "worker:1@await_file=" + folder.path() + "/go",
                                 "worker:1@exit=7", "hang"}});
  launched.wait_for_errors("(resumable)");
  touch(folder.path() + "/go");
  EXPECT_EQ(launched.wait(), 7);
  EXPECT_THAT(launched.errors(), HasSubstr("failed: worker:1"));
}

// Restarts of one task.

TEST(LauncherTaskRestart, StartsATaskThatDiesAgainWhileTheOthersGoOn) {
  const Finished run =
      finish({.flags = {"--workers=2", "--ps=1", "--task_restarts=2"},
              .actions = {"show=COHORT_TASK_RESTART_COUNT", "show=COHORT_MAX_TASK_RESTARTS",
                          "show=COHORT_RESTART_COUNT", "show=COHORT_JOB_ID", "show=TF_CONFIG",
                          "worker:1@die_before_task_restart=1", "ps@fail_before_task_restart=1",
                          "worker:0@call=worker:1", "worker:0@call=ps:0",
                          "worker:1@serve=inherited", "ps@serve=inherited", "ps@hang"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  const auto shown = [&](const std::string& task, const std::string& variable) {
    return lines_of(run.output, "[" + task + "] " + variable + "=");
  };
  EXPECT_THAT(shown("worker:0", "COHORT_TASK_RESTART_COUNT"), ElementsAre("0"));
  for (const char* task : {"worker:1", "ps:0"}) {
    SCOPED_TRACE(task);
    EXPECT_THAT(shown(task, "COHORT_TASK_RESTART_COUNT"), ElementsAre("0", "1"));
    EXPECT_THAT(shown(task, "COHORT_MAX_TASK_RESTARTS"), ElementsAre("2", "2"));
    EXPECT_THAT(shown(task, "COHORT_RESTART_COUNT"), ElementsAre("0", "0"));
    for (const char* variable : {"COHORT_JOB_ID", "TF_CONFIG"}) {
      const auto values = shown(task, variable);
      ASSERT_EQ(values.size(), 2);
      EXPECT_EQ(values[0], values[1]);
    }
  }
  EXPECT_THAT(run.errors,
              HasSubstr("worker:1 was killed by SIGKILL (Killed); started again, 1 of 2\n"));
  EXPECT_THAT(run.errors, HasSubstr("ps:0 exited with code 3; started again, 1 of 2\n"));
  EXPECT_THAT(run.errors, HasSubstr("started again alone: worker:1 once, ps:0 once\n"));
  EXPECT_THAT(run.errors, Not(HasSubstr("failed")));
}

TEST(LauncherTaskRestart, EndsTheOthersWhenNoneIsLeft) {
  const Finished run = finish(
      {.flags = {"--ps=1", "--task_restarts=1"}, .actions = {"ps@print=why", "ps@exit=3", "hang"}});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.errors, HasSubstr("ps:0 exited with code 3, after it was started again once; "
                                    "ending worker:0"));
  EXPECT_THAT(run.errors, HasSubstr("failed: ps:0 (pid "));
  EXPECT_THAT(lines_of(run.errors, "cohort-run:   | "), ElementsAre("why"));
}

TEST(LauncherTaskRestart, IsCountedAnewWhenAllAreStartedAgain) {
  const Finished run = finish({.flags = {"--ps=1", "--restarts=1", "--task_restarts=1"},
                               .actions = {"ps@hang", "show=COHORT_TASK_RESTART_COUNT", "exit=3"}});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(lines_of(run.output, "[worker:0] COHORT_TASK_RESTART_COUNT="),
              ElementsAre("0", "1", "0", "1"));
  EXPECT_THAT(run.errors, HasSubstr("restarting all tasks (restart 1 of 1)"));
}

TEST(LauncherTaskRestart, IsThereForAnEvaluatorAndNotForAChief) {
  const std::vector<std::string> flags = {"--ps=1", "--chief", "--evaluator", "--task_restarts=5"};
  const Finished chief = finish(
      {.flags = flags, .actions = {"chief@show=COHORT_MAX_TASK_RESTARTS", "chief@exit=3", "hang"}});
  EXPECT_EQ(chief.code, 3);
  EXPECT_EQ(chief.output, "[chief:0] COHORT_MAX_TASK_RESTARTS=0\n");
  EXPECT_THAT(chief.errors, Not(HasSubstr("started again")));

  const TemporaryFolder folder("launcher");
  Launched launched({.flags = flags,
                     .actions = {"evaluator@fail_before_task_restart=1", "evaluator@print=again",
                                 "evaluator@hang", "await_file=" + folder.path() + "/go"}});
  launched.wait_for_output("[evaluator:0] again");
  touch(folder.path() + "/go");
  EXPECT_EQ(launched.wait(), 0) << launched.errors();
}

TEST(LauncherTaskRestart, IsForATaskThatAsksToBeResumedToo) {
  const Finished run = finish(
      {.flags = {"--ps=1", "--task_restarts=1"}, .actions = {"ps@hang", "print=saved", "exit=42"}});
  EXPECT_EQ(run.code, 42);
  EXPECT_EQ(run.output, "[worker:0] saved\n[worker:0] saved\n");
  EXPECT_THAT(run.errors,
              HasSubstr("worker:0 exited with code 42 (resumable); started again, 1 of 1"));
}

// Which would have the port, here.
TEST(LauncherTaskRestart, WaitsForTheEndOfWhatTheTaskHasLeftInItsGroup) {
  const Finished run = finish(
      {.flags = {"--ps=1", "--task_restarts=1", "--grace=0.1"},
       .actions = {"ps@hang", "listen=inherited", "leave_child", "fail_before_task_restart=1"}});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.output, "[worker:0] listens\n[worker:0] listens\n");
}

TEST(LauncherTaskRestart, ThatIsToComeIsGivenUpAtASignal) {
  Launched launched({.flags = {"--ps=1", "--task_restarts=1000"},
                     .actions = {"ps@handle_signals=0", "ps@print=ready", "ps@hang", "exit=3"}});
  launched.wait_for_output("ready");
  launched.wait_for_errors("s, 3 of 1000");  // after a pause
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 3) << "others have ended well, it has not";
  EXPECT_THAT(launched.errors(), HasSubstr("passing SIGTERM on to ps:0"));
  EXPECT_THAT(launched.errors(), HasSubstr("failed: worker:0 (pid "));
  EXPECT_THAT(launched.errors(), HasSubstr("started again alone: worker:0 2 times"));
}

TEST(LauncherTimeout, EndsARunInWhichATaskIsStartedAgainAndAgain) {
  const Finished run = finish({.flags = {"--ps=1", "--task_restarts=1000", "--timeout=0.5"},
                               .actions = {"ps@hang", "exit=3"}});
  EXPECT_EQ(run.code, 14) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("timed out: worker:0 (pid "));
}

TEST(LauncherTimeout, EndsTheRunAndShowsWhatTasksPrinted) {
  const Finished run = finish({.flags = {"--workers=2", "--timeout=0.5", "--restarts=3"},
                               .actions = {"print=hello", "hang"}});
  EXPECT_EQ(run.code, 14) << run.errors;
  EXPECT_THAT(run.errors,
              HasSubstr("the run has lasted 0.5 s (--timeout); ending worker:0, worker:1"));
  EXPECT_THAT(run.errors, HasSubstr("timed out: worker:1 (pid "));
  EXPECT_EQ(lines_of(run.errors, "cohort-run:   | hello").size(), 2);
  EXPECT_THAT(run.errors, Not(HasSubstr("restarting")));
}

TEST(LauncherTimeout, AlsoEndsTasksThatHaveTimeToFinish) {
  const std::vector<std::string> flags = {"--workers=1", "--chief", "--timeout=2", "--grace=20"};
  const Finished run = finish({.flags = flags, .actions = {"chief@exit=0", "hang"}});
  EXPECT_EQ(run.code, 14) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("the run has lasted 2 s (--timeout); ending worker:0"));
  const Finished failed = finish({.flags = flags, .actions = {"chief@exit=42", "hang"}});
  EXPECT_EQ(failed.code, 42) << failed.errors;
  EXPECT_THAT(failed.errors, HasSubstr("cohort-run: ending worker:0"));
  EXPECT_THAT(failed.errors, Not(HasSubstr("timed out")));
}

TEST(LauncherTimeout, IsNothingBesideAnErrorAndASuccess) {
  EXPECT_EQ(finish({.flags = {"--timeout=60"}, .actions = {"exit=3"}}).code, 3);
  EXPECT_EQ(finish({.flags = {"--timeout=60"}, .actions = {"print=hello"}}).code, 0);
  const Finished again =
      finish({.flags = {"--timeout=0.5", "--restarts=100"}, .actions = {"exit=3"}});
  EXPECT_EQ(again.code, 3);
  EXPECT_THAT(again.errors, HasSubstr("no restart: the run has lasted 0.5 s (--timeout) by then"));
}

}  // namespace
}  // namespace cohort::testing
