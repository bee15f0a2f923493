// cohort-run, as its users meet it: real processes of the real program.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <set>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/temporary_folder.h"
#include "tests/strategies/cluster/launcher/launched.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

void touch(const std::string& path) { std::ofstream{path}; }

// What the task `name` showed of `variable`.
std::string shown(const Finished& run, const std::string& name, const std::string& variable) {
  const auto values = lines_of(run.output, "[" + name + "] " + variable);
  EXPECT_EQ(values.size(), 1) << name << " " << variable << "\n" << run.output;
  if (values.empty()) return "nothing";
  return values[0].starts_with("=") ? values[0].substr(1) : values[0];
}

// The processes below `pid`, one level deep.
std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

// Runs tasks of which all show variables, the last being `last`; trainers end only when `tasks`
// tasks have done so.
Finished show_all(Launch launch, const std::string& last, int tasks) {
  const TemporaryFolder folder("launcher");
  launch.actions.push_back("await_file=" + folder.path() + "/go");
  Launched launched(launch);
  launched.wait_for_output(last, tasks);
  touch(folder.path() + "/go");
  const int code = launched.wait();
  return {code, launched.output(), launched.errors()};
}

TEST(LauncherEnvironment, DescribesTheClusterToEveryTask) {
  const Finished run = show_all(
      {.flags = {"--workers=2", "--ps=2", "--chief", "--evaluator"}, .actions = {"show=TF_CONFIG"}},
      "TF_CONFIG", 6);
  ASSERT_EQ(run.code, 0) << run.errors;
  const std::vector<std::string> names = {"chief:0", "worker:0", "worker:1",
                                          "ps:0",    "ps:1",     "evaluator:0"};
  const Json cluster = Json::parse(shown(run, "chief:0", "TF_CONFIG"))["cluster"];
  for (const auto& name : names) {
    const Json config = Json::parse(shown(run, name, "TF_CONFIG"));
    EXPECT_EQ(config["cluster"], cluster);
    EXPECT_EQ(config["task"]["type"], name.substr(0, name.find(':')));
    EXPECT_EQ(config["task"]["index"], std::stoi(name.substr(name.find(':') + 1)));
  }
  EXPECT_EQ(cluster.size(), 3) << "the evaluator is no member: " << cluster;
  std::set<std::string> addresses;
  for (const auto& [job, count] :
       std::map<std::string, int>{{"chief", 1}, {"worker", 2}, {"ps", 2}}) {
    EXPECT_EQ(cluster[job].size(), count) << job;
    for (const std::string address : cluster[job]) {
      EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
      addresses.insert(address);
    }
  }
  EXPECT_EQ(addresses.size(), 5) << cluster;
}

TEST(LauncherEnvironment, NumbersTheTasksThatTrain) {
  const std::vector<std::string> variables = {
      "RANK",       "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
      "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"};
  std::vector<std::string> actions = {"show=TF_CONFIG", "show=COHORT_LISTEN_FD"};
  for (const auto& name : variables) actions.push_back("show=" + name);
  for (const bool chief : {false, true}) {
    const Finished run = show_all(
        {.flags = {"--workers=3", "--ps=1", "--evaluator", chief ? "--chief" : "--chief=false"},
         .actions = actions,
         // Those of whoever started cohort-run mean nothing to its tasks.
         .environment = {{"RANK", "7"}, {"MASTER_PORT", "1"}, {"COHORT_LISTEN_FD", "5"}}},
        "MASTER_PORT", chief ? 6 : 5);
    ASSERT_EQ(run.code, 0) << run.errors;
    std::vector<std::string> trainers = {"worker:0", "worker:1", "worker:2"};
    if (chief) trainers.insert(trainers.begin(), "chief:0");
    const Json cluster = Json::parse(shown(run, "worker:0", "TF_CONFIG"))["cluster"];
    const std::string leader = cluster[chief ? "chief" : "worker"][0];
    for (size_t rank = 0; rank < trainers.size(); ++rank) {
      for (const char* name : {"RANK", "LOCAL_RANK"}) {
        EXPECT_EQ(shown(run, trainers[rank], name), std::to_string(rank));
      }
      for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
        EXPECT_EQ(shown(run, trainers[rank], name), std::to_string(trainers.size()));
      }
      EXPECT_EQ(shown(run, trainers[rank], "GROUP_RANK"), "0");
      EXPECT_EQ(shown(run, trainers[rank], "MASTER_ADDR") + ":" +
                    shown(run, trainers[rank], "MASTER_PORT"),
                leader);
    }
    for (const char* other : {"ps:0", "evaluator:0"}) {
      for (const auto& name : variables)
        EXPECT_EQ(shown(run, other, name), " is unset") << other << " " << name;
    }
    EXPECT_EQ(shown(run, "evaluator:0", "COHORT_LISTEN_FD"), " is unset");
  }
}

TEST(LauncherEnvironment, DividesTheCoresUnlessTold) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  const std::string threads = std::to_string(std::max(1, CPU_COUNT(&cores) / 3));
  const Finished divided = show_all(
      {.flags = {"--workers=2", "--ps=1"}, .actions = {"show=OMP_NUM_THREADS"}}, "OMP_NUM", 3);
  EXPECT_EQ(shown(divided, "worker:1", "OMP_NUM_THREADS"), threads);
  EXPECT_EQ(shown(divided, "ps:0", "OMP_NUM_THREADS"), threads);
  EXPECT_THAT(divided.errors, HasSubstr("OMP_NUM_THREADS=" + threads + " for each of 3 tasks on "));

  const Finished told = finish({.flags = {"--workers=2"},
                                .actions = {"show=OMP_NUM_THREADS"},
                                .environment = {{"OMP_NUM_THREADS", "13"}}});
  EXPECT_EQ(shown(told, "worker:1", "OMP_NUM_THREADS"), "13");
  EXPECT_EQ(told.errors, "");

  const Finished alone = finish({.actions = {"show=OMP_NUM_THREADS"}});
  EXPECT_EQ(shown(alone, "worker:0", "OMP_NUM_THREADS"), " is unset");
}

TEST(LauncherEnvironment, HasAWorkerForEachCoreWhereTheirNumberIsAuto) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  const int number = std::min(CPU_COUNT(&cores), 1000);
  const Finished run = finish({.flags = {"--workers=auto"}, .actions = {"show=WORLD_SIZE"}});
  for (const int worker : {0, number - 1})
    EXPECT_EQ(shown(run, "worker:" + std::to_string(worker), "WORLD_SIZE"), std::to_string(number));
}

// Ports.

class LauncherPort : public ::testing::TestWithParam<std::string> {};

TEST_P(LauncherPort, IsThereForTheTaskHoweverItListens) {
  const Finished run =
      finish({.flags = {"--workers=2", "--ps=1"},
              .actions = {"worker:0@call=worker:1", "worker:0@call=ps:0",
                          "worker:1@serve=" + GetParam(), "ps@serve=" + GetParam()}});
  EXPECT_EQ(run.code, 0) << run.output << run.errors;
  EXPECT_THAT(lines_of(run.output, ""),
              ElementsAre("[worker:0] this is worker:1", "[worker:0] this is ps:0"));
}

TEST_P(LauncherPort, StaysTheSameAfterARestart) {
  const Finished run =
      finish({.flags = {"--workers=2", "--restarts=1"},
              .actions = {"worker:0@show=MASTER_PORT", "worker:0@serve=" + GetParam(),
                          "worker:1@call=worker:0", "worker:1@fail_before_restart=1"}});
  EXPECT_EQ(run.code, 0) << run.output << run.errors;
  const auto ports = lines_of(run.output, "[worker:0] MASTER_PORT=");
  ASSERT_EQ(ports.size(), 2);
  EXPECT_EQ(ports[0], ports[1]);
  EXPECT_EQ(lines_of(run.output, "[worker:1] this is worker:0").size(), 2);
}

class LauncherPortOfOne : public LauncherPort {};

TEST_P(LauncherPortOfOne, IsNeverSharedWithASecondListener) {
  const Finished run = finish({.actions = {"listen=" + GetParam(), "listen=reuseport"}});
  EXPECT_THAT(lines_of(run.output, "[worker:0] "),
              ElementsAre("listens", "cannot bind: Address already in use"));
}

INSTANTIATE_TEST_SUITE_P(Manners, LauncherPort,
                         ::testing::Values("inherited", "reuseaddr", "reuseport", "wildcard"),
                         [](const auto& manner) { return manner.param; });

// Who sets SO_REUSEPORT asks for sharing, so that this manner is left out.
INSTANTIATE_TEST_SUITE_P(Manners, LauncherPortOfOne,
                         ::testing::Values("inherited", "reuseaddr", "wildcard"),
                         [](const auto& manner) { return manner.param; });

TEST(LauncherPorts, AreKeptFromThoseWhoDoNotMeanToShareIt) {
  const Finished run = finish({.actions = {"listen=plain"}});
  EXPECT_THAT(run.output, HasSubstr("cannot bind: Address already in use"));
}

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

TEST(LauncherEnd, IsTheFirstFailure) {
  for (const char* who : {"worker:1", "ps:0", "evaluator:0", "chief:0"}) {
    SCOPED_TRACE(who);
    const std::string failing = std::string(who) + "@";
    const Finished run = finish({.flags = {"--workers=2", "--ps=1", "--chief", "--evaluator"},
                                 .actions = {failing + "print=so far", failing + "complain=so bad",
                                             failing + "exit=20", "hang"}});
    EXPECT_EQ(run.code, 20);
    EXPECT_THAT(run.errors, HasSubstr(std::string(who) + " exited with code 20; ending "));
    EXPECT_THAT(run.errors, HasSubstr("cohort-run: failed: " + std::string(who) + " (pid "));
    EXPECT_THAT(lines_of(run.errors, "cohort-run:   | "), UnorderedElementsAre("so far", "so bad"));
    const auto ended = lines_of(run.errors, "cohort-run: then ");
    EXPECT_EQ(ended.size(), 4);
    for (const auto& line : ended) EXPECT_THAT(line, HasSubstr("was killed by SIGTERM"));
  }
}

TEST(LauncherEnd, IsTheDeathThatOthersNoticedSooner) {
  const TemporaryFolder folder("launcher");
  Launched launched(
      {.flags = {"--workers=2"},
       .actions = {"worker:0@await_file=" + folder.path() + "/noticed",
                   "worker:0@exit=" + std::to_string(exit_code(Code::kUnavailable)),
                   "handle_signals", "print=ready", "await_file=" + folder.path() + "/dies",
                   "raise=" + std::to_string(SIGKILL)}});
  launched.wait_for_output("ready");
  touch(folder.path() + "/noticed");
  launched.wait_for_errors("; ending worker:1");
  touch(folder.path() + "/dies");
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  EXPECT_THAT(launched.errors(), HasSubstr("failed: worker:1"));
  EXPECT_THAT(launched.errors(), HasSubstr("then worker:0"));
}

TEST(LauncherEnd, NamesSignals) {
  for (const auto& [signal, name] : {std::pair{SIGUSR1, "SIGUSR1"}, {SIGKILL, "SIGKILL"}}) {
    const Finished run = finish({.flags = {"--workers=2"},
                                 .actions = {"worker:0@raise=" + std::to_string(signal), "hang"}});
    EXPECT_EQ(run.code, 128 + signal);
    EXPECT_THAT(run.errors, HasSubstr("worker:0 was killed by " + std::string(name)));
    EXPECT_THAT(run.errors, HasSubstr("and printed nothing"));
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

TEST(LauncherSignal, IsPassedOnOnce) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
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

TEST(LauncherSignal, SentTwiceAsInterruptKills) {
  Launched launched({.flags = {"--workers=2", "--grace=1000"},
                     .actions = {"handle_signals", "print=ready", "hang", "hang"}});
  launched.wait_for_output("ready", 2);
  launched.send(SIGINT);
  launched.wait_for_output("got SIGINT", 2);
  launched.send(SIGINT);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  EXPECT_THAT(launched.errors(), HasSubstr("interrupted again; killing worker:0, worker:1"));
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

// Orphans. Launched checks that none are left.

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

TEST(LauncherOrphans, AreEndedWhenTheLauncherIsKilled) {
  Launched launched(
      {.flags = {"--workers=3"},
       .actions = {"leave_child", "leave_child=daemon", "handle_signals", "print=ready", "hang"}});
  launched.wait_for_output("ready", 3);
  launched.send(SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  launched.wait_until_nothing_is_left();
}

TEST(LauncherOrphans, AreEndedWhenTheSupervisorIsKilled) {
  Launched launched(
      {.flags = {"--workers=3"},
       .actions = {"leave_child", "leave_child=daemon", "handle_signals", "print=ready", "hang"}});
  launched.wait_for_output("ready", 3);
  const auto supervisor = children_of(launched.pid());
  ASSERT_EQ(supervisor.size(), 1);
  kill(supervisor[0], SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  EXPECT_THAT(launched.errors(), HasSubstr("the supervisor was killed by SIGKILL"));
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

TEST(LauncherTimeout, IsNothingBesideAnErrorAndASuccess) {
  EXPECT_EQ(finish({.flags = {"--timeout=60"}, .actions = {"exit=3"}}).code, 3);
  EXPECT_EQ(finish({.flags = {"--timeout=60"}, .actions = {"print=hello"}}).code, 0);
  const Finished again =
      finish({.flags = {"--timeout=0.5", "--restarts=100"}, .actions = {"exit=3"}});
  EXPECT_EQ(again.code, 3);
  EXPECT_THAT(again.errors, HasSubstr("no restart: the run has lasted 0.5 s (--timeout) by then"));
}

// Inside another launcher.

TEST(LauncherInside, AnotherLauncherRunsTheProgramAsItIs) {
  const auto expect = [](const std::string& rank_variable, const std::string& rank,
                         std::map<std::string, std::string> others) {
    SCOPED_TRACE(rank_variable);
    others[rank_variable] = rank;
    Launch launch = {
        .flags = {"--workers=3"}, .actions = {"show=TF_CONFIG", "exit=6"}, .environment = others};
    const Finished run = finish(launch);
    EXPECT_EQ(run.code, 6);
    EXPECT_EQ(run.output, "TF_CONFIG is unset\n");
    EXPECT_EQ(run.errors.empty(), rank != "0") << "the first one says so: " << run.errors;

    launch.flags.push_back("--standalone");
    launch.actions = {"show=" + rank_variable};
    const Finished standalone = finish(launch);
    EXPECT_EQ(standalone.code, 0);
    EXPECT_EQ(shown(standalone, "worker:2", rank_variable), " is unset");
  };
  expect("SLURM_PROCID", "1", {{"SLURM_NTASKS", "4"}});
  expect("SLURM_PROCID", "0", {{"SLURM_STEP_NUM_TASKS", "2"}, {"ENVIRONMENT", "BATCH"}});
  expect("OMPI_COMM_WORLD_RANK", "3", {{"OMPI_COMM_WORLD_SIZE", "4"}});
  expect("PMI_RANK", "0", {{"PMI_SIZE", "2"}});
}

TEST(LauncherInside, ABatchScriptOrAStepOfOneTaskStartsACluster) {
  using Variables = std::map<std::string, std::string>;
  for (const Variables& variables : {
           Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"ENVIRONMENT", "BATCH"}},
           Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}},
           Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
           // mpirun -np 1 in a Slurm job of two hosts: Slurm speaks of mpirun's daemons.
           Variables{{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "1"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "2"}},
           Variables{{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "4"}},
       }) {
    const Finished run =
        finish({.flags = {"--workers=2"}, .actions = {"print=here"}, .environment = variables});
    EXPECT_EQ(lines_of(run.output, "").size(), 2) << run.output;
  }
}

// The command line.

TEST(LauncherFlags, EndWhereTheProgramBegins) {
  const Finished run = finish({.flags = {"--workers", "2", "--chief", "--grace", "3"},
                               .actions = {"--workers=9", "--help"},
                               .program = "/bin/echo"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(lines_of(run.output, "[chief:0] --workers=9 --help").size(), 1) << run.output;
  EXPECT_EQ(lines_of(run.output, "").size(), 3);
  EXPECT_EQ(finish({.flags = {"--"}, .actions = {"x"}, .program = "/bin/echo"}).output,
            "[worker:0] x\n");
}

TEST(LauncherFlags, AreChecked) {
  const auto expect = [](std::vector<std::string> flags, const std::string& program, int code,
                         const std::string& message) {
    const Finished run = finish({.flags = std::move(flags), .program = program});
    EXPECT_EQ(run.code, code) << message;
    EXPECT_THAT(run.errors, HasSubstr(message));
    EXPECT_THAT(run.output, IsEmpty());
  };
  expect({"--workers=0"}, "/bin/true", 2,
         "--workers=0 leaves nobody to train: expected at least 1, or --chief");
  expect({"--workers=-1"}, "/bin/true", 2,
         "--workers=-1 is not allowed: expected an integer, at least 0");
  expect({"--workers=x"}, "/bin/true", 2, "--workers=x is not allowed");
  expect({"--workers=1001"}, "/bin/true", 2, "at most 1000, or auto");
  expect({"--timeout=-1"}, "/bin/true", 2, "--timeout=-1 is not allowed");
  expect({"--workers"}, "none", 2, "--workers needs a value");
  expect({"--worker=2"}, "/bin/true", 2, "unknown flag --worker; did you mean --workers?");
  expect({"--nodes=2"}, "/bin/true", 2, "unknown flag --nodes");
  expect({"--restarts=-1"}, "/bin/true", 2, "--restarts=-1 is not allowed");
  expect({"--grace=nan"}, "/bin/true", 2, "--grace=nan is not allowed");
  expect({"--chief=maybe"}, "/bin/true", 2, "--chief=maybe is not allowed");
  expect({"--workers=2"}, "none", 2,
         "no program is given: expected cohort-run [flags] PROGRAM [ARGS...]");
  expect({}, "./no/such", 15, "no such program: ./no/such");
  expect({}, "no-such", 15, "no program no-such in PATH");
  expect({}, "/etc/passwd", 17, "/etc/passwd is not executable");
  expect({}, "/etc", 17, "/etc is not a file");
  expect({"--log_dir=/proc/none"}, "/bin/true", 15, "/proc/none");
}

TEST(LauncherFlags, HelpNamesThemAll) {
  const Finished run = finish({.flags = {"--help"}, .program = "none"});
  EXPECT_EQ(run.code, 0);
  for (const char* name : {"workers", "ps", "chief", "evaluator", "restarts", "grace", "timeout",
                           "log_dir", "standalone"}) {
    EXPECT_THAT(run.output, HasSubstr(std::string("  --") + name + " "));
  }
}

TEST(LauncherFlags, ProgramThatCannotBeRunIsAnError) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/script";
  const auto expect = [&](const std::string& text, const std::string& why) {
    SCOPED_TRACE(text);
    std::ofstream(path) << text;
    chmod(path.c_str(), 0755);
    const Finished run = finish({.flags = {"--workers=2"}, .program = path});
    EXPECT_EQ(run.code, 15);
    EXPECT_THAT(run.errors, HasSubstr("cannot run " + path + why + "\n"));
  };
  expect("#!/no/such/interpreter\n", ": its interpreter /no/such/interpreter is missing");
  expect("#! \t/no/such/interpreter -u\n", ": its interpreter /no/such/interpreter is missing");
  expect("#!/no/such/interpreter", ": its interpreter /no/such/interpreter is missing");
  expect("#!/bin/sh\r\nexit 0\r\n",
         ": its interpreter /bin/sh is missing, for its lines end as on Windows, with a carriage "
         "return");
  // An interpreter that is there, and whose own is not.
  const std::string other = folder.path() + "/other";
  std::ofstream(other) << "#!/no/such/interpreter\n";
  chmod(other.c_str(), 0755);
  expect("#!" + other + "\n", ": No such file or directory");
}

}  // namespace
}  // namespace cohort::testing
