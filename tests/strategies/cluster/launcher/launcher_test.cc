// cohort-run, as its users meet it: real processes of the real program.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "core/base/temporary_folder.h"
#include "core/base/version.h"
#include "tests/strategies/cluster/launcher/launched.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

// Runs a script in namespaces of its own, which unshare's `flags` name; its arguments begin with
// $0.
Finished finish_unshared(const std::string& flags, const std::string& script,
                         const std::vector<std::string>& arguments) {
  Launch launch{.actions = {flags, "/bin/sh", "-c", script}, .program = "/usr/bin/unshare"};
  launch.actions.insert(launch.actions.end(), arguments.begin(), arguments.end());
  return finish(launch);
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
  const Json cluster = Json::parse(shown(run.output, "chief:0", "TF_CONFIG"))["cluster"];
  for (const auto& name : names) {
    const Json config = Json::parse(shown(run.output, name, "TF_CONFIG"));
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
  const std::vector<std::string> variables = {"RANK",
                                              "WORLD_SIZE",
                                              "ROLE_RANK",
                                              "ROLE_WORLD_SIZE",
                                              "LOCAL_RANK",
                                              "LOCAL_WORLD_SIZE",
                                              "GROUP_RANK",
                                              "TORCHELASTIC_RUN_ID",
                                              "TORCHELASTIC_MAX_RESTARTS",
                                              "MASTER_ADDR",
                                              "MASTER_PORT"};
  std::vector<std::string> actions = {"show=TF_CONFIG", "show=COHORT_LISTEN_FD",
                                      "show=COHORT_JOB_ID", "show=COHORT_MAX_RESTARTS"};
  for (const auto& name : variables) actions.push_back("show=" + name);
  for (const bool chief : {false, true}) {
    const Finished run = show_all({.flags = {"--workers=3", "--ps=1", "--evaluator", "--restarts=2",
                                             chief ? "--chief" : "--chief=false"},
                                   .actions = actions,
                                   // Those of whoever started cohort-run mean nothing to its tasks.
                                   .environment = {{"RANK", "7"},
                                                   {"ROLE_RANK", "7"},
                                                   {"TORCHELASTIC_RUN_ID", "other"},
                                                   {"TORCHELASTIC_MAX_RESTARTS", "7"},
                                                   {"COHORT_MAX_RESTARTS", "7"},
                                                   {"MASTER_PORT", "1"},
                                                   {"COHORT_LISTEN_FD", "5"}}},
                                  "MASTER_PORT", chief ? 6 : 5);
    ASSERT_EQ(run.code, 0) << run.errors;
    std::vector<std::string> trainers = {"worker:0", "worker:1", "worker:2"};
    if (chief) trainers.insert(trainers.begin(), "chief:0");
    const Json cluster = Json::parse(shown(run.output, "worker:0", "TF_CONFIG"))["cluster"];
    const std::string leader = cluster[chief ? "chief" : "worker"][0],
                      job_id = shown(run.output, "ps:0", "COHORT_JOB_ID");
    for (size_t rank = 0; rank < trainers.size(); ++rank) {
      for (const char* name : {"RANK", "ROLE_RANK", "LOCAL_RANK"}) {
        EXPECT_EQ(shown(run.output, trainers[rank], name), std::to_string(rank));
      }
      for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
        EXPECT_EQ(shown(run.output, trainers[rank], name), std::to_string(trainers.size()));
      }
      EXPECT_EQ(shown(run.output, trainers[rank], "GROUP_RANK"), "0");
      EXPECT_EQ(shown(run.output, trainers[rank], "TORCHELASTIC_RUN_ID"), job_id);
      for (const char* name : {"TORCHELASTIC_MAX_RESTARTS", "COHORT_MAX_RESTARTS"}) {
        EXPECT_EQ(shown(run.output, trainers[rank], name), "2");
      }
      EXPECT_EQ(shown(run.output, trainers[rank], "MASTER_ADDR") + ":" +
                    shown(run.output, trainers[rank], "MASTER_PORT"),
                leader);
    }
    for (const char* other : {"ps:0", "evaluator:0"}) {
      for (const auto& name : variables)
        EXPECT_EQ(shown(run.output, other, name), " is unset") << other << " " << name;
      EXPECT_EQ(shown(run.output, other, "COHORT_MAX_RESTARTS"), "2");
    }
    EXPECT_EQ(shown(run.output, "evaluator:0", "COHORT_LISTEN_FD"), " is unset");
  }
}

TEST(LauncherEnvironment, KeepsTheIdOfTheJobWhereItIsGiven) {
  const Finished run =
      finish({.flags = {"--workers=2", "--restarts=1"},
              .actions = {"worker:0@show=COHORT_JOB_ID", "worker:0@show=TORCHELASTIC_RUN_ID",
                          "worker:0@fail_before_restart=1"},
              .environment = {{"COHORT_JOB_ID", "blue"}, {"OMP_NUM_THREADS", "1"}}});
  EXPECT_EQ(run.code, 0) << run.errors;
  for (const char* name : {"COHORT_JOB_ID", "TORCHELASTIC_RUN_ID"})
    EXPECT_THAT(lines_of(run.output, std::string("[worker:0] ") + name + "="),
                ElementsAre("blue", "blue"));
  const Finished wrong =
      finish({.environment = {{"COHORT_JOB_ID", "a b"}}, .program = "/bin/true"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.errors, HasSubstr("COHORT_JOB_ID: found \"a b\""));
}

TEST(LauncherEnvironment, DividesTheCoresUnlessTold) {
  const std::string threads = std::to_string(std::max(1, available_cores() / 3));
  const Finished divided = show_all(
      {.flags = {"--workers=2", "--ps=1"}, .actions = {"show=OMP_NUM_THREADS"}}, "OMP_NUM", 3);
  EXPECT_EQ(shown(divided.output, "worker:1", "OMP_NUM_THREADS"), threads);
  EXPECT_EQ(shown(divided.output, "ps:0", "OMP_NUM_THREADS"), threads);
  EXPECT_THAT(divided.errors, HasSubstr("OMP_NUM_THREADS=" + threads + " for each of 3 tasks on "));

  const Finished told = finish({.flags = {"--workers=2"},
                                .actions = {"show=OMP_NUM_THREADS"},
                                .environment = {{"OMP_NUM_THREADS", "13"}}});
  EXPECT_EQ(shown(told.output, "worker:1", "OMP_NUM_THREADS"), "13");
  EXPECT_EQ(told.errors, "");

  const Finished alone = finish({.actions = {"show=OMP_NUM_THREADS"}});
  EXPECT_EQ(shown(alone.output, "worker:0", "OMP_NUM_THREADS"), " is unset");
}

// The cores that this process may run on, as the kernel lists them.
std::string allowed_cores() {
  std::ifstream status("/proc/self/status");
  const std::string text{std::istreambuf_iterator<char>(status), {}};
  return lines_of(text, "Cpus_allowed_list:\t").at(0);
}

TEST(LauncherEnvironment, HasAllCoresWhereOpenMPPinsThreads) {
  const Finished run = finish({.flags = {"--workers=2"},
                               .actions = {"-c", "grep Cpus_allowed_list: /proc/self/status"},
                               .environment = {{"OMP_PROC_BIND", "true"}},
                               .program = "/bin/sh"});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr(" on " + std::to_string(available_cores()) + " cores "));
  for (const char* task : {"[worker:0] ", "[worker:1] "})
    EXPECT_THAT(lines_of(run.output, std::string(task) + "Cpus_allowed_list:\t"),
                ElementsAre(allowed_cores()));
}

// "0-2,8" as its numbers.
std::vector<int> cores_of(const std::string& list) {
  std::vector<int> cores;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) {
    const int first = std::stoi(part), last = std::stoi(part.substr(part.find('-') + 1));
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

TEST(LauncherEnvironment, HasCoresOfItsOwnWhereItIsBound) {
  const std::vector<int> cores = cores_of(allowed_cores());
  const int share = static_cast<int>(cores.size()) / 2;
  if (share == 0) GTEST_SKIP() << "one core";
  Launched launched({.flags = {"--ps=1", "--bind=cores"},
                     .actions = {"-c", "grep Cpus_allowed_list: /proc/self/status; exec sleep 60"},
                     .program = "/bin/sh"});
  launched.wait_for_output("Cpus_allowed_list", 2);
  launched.send(SIGTERM);
  launched.wait();
  auto first = cores.begin();
  for (const char* task : {"worker:0", "ps:0"}) {
    const auto lists = lines_of(launched.output(), str("[", task, "] Cpus_allowed_list:\t"));
    ASSERT_EQ(lists.size(), 1) << launched.output();
    EXPECT_EQ(cores_of(lists[0]), std::vector<int>(first, first + share));
    first += share;
  }
}

TEST(LauncherEnvironment, IsNotBoundWhereTasksAreMoreThanCores) {
  const size_t cores = cores_of(allowed_cores()).size();
  if (cores >= 1000) GTEST_SKIP() << "too many cores";
  const Finished run =
      finish({.flags = {"--bind=cores", str("--ps=", cores)}, .program = "/bin/true"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.errors, HasSubstr(str("expected at most ", cores,
                                        " tasks, one for each core, found ", cores + 1)));
}

TEST(LauncherEnvironment, HasAWorkerForEachCoreWhereTheirNumberIsAuto) {
  const int number = std::min(available_cores(), 1000);
  const Finished run = finish({.flags = {"--workers=auto"}, .actions = {"show=WORLD_SIZE"}});
  for (const int worker : {0, number - 1})
    EXPECT_EQ(shown(run.output, "worker:" + std::to_string(worker), "WORLD_SIZE"),
              std::to_string(number));
}

TEST(LauncherEnvironment, HasAWorkerForEachGpuThatIsVisible) {
  const auto finish_with = [](const std::string& visible) {
    return finish({.flags = {"--workers=gpu"},
                   .actions = {"show=WORLD_SIZE"},
                   .environment = {{"CUDA_VISIBLE_DEVICES", visible}}});
  };
  EXPECT_EQ(shown(finish_with("4,GPU-1f,7").output, "worker:2", "WORLD_SIZE"), "3");
  const Finished without = finish_with("-1");
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.errors,
              HasSubstr("--workers=gpu finds no GPU: CUDA_VISIBLE_DEVICES=\"-1\" names none"));
}

// Open files, of which each task takes three.

TEST(LauncherFiles, MayBeMoreThanTheSoftLimitWhichTasksKeep) {
  const Finished run = finish({.flags = {"--workers=20"},
                               .actions = {"-c", "ulimit -n"},
                               .program = "/bin/sh",
                               .soft_files = 40});
  EXPECT_EQ(run.code, 0) << run.errors;
  for (const int worker : {0, 19})
    EXPECT_THAT(lines_of(run.output, "[worker:" + std::to_string(worker) + "] "),
                ElementsAre("40"));
}

TEST(LauncherFiles, ThatTheHardLimitDoesNotAllowAreAnError) {
  const Finished run = finish(
      {.flags = {"--workers=20"}, .actions = {"print=ran"}, .soft_files = 40, .hard_files = 40});
  EXPECT_EQ(run.code, 18);
  EXPECT_THAT(run.errors, HasSubstr("--workers=20 --ps=0 needs up to "));
  EXPECT_THAT(run.errors, HasSubstr("the system allows 40 (ulimit -Hn)"));
  EXPECT_EQ(run.output, "");
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

TEST(LauncherPorts, AreThoseOfIPv6WhereALoopbackHasNoOther) {
  const auto finish_there = [](const std::string& command) {
    return finish_unshared("-rn",
                           "PATH=$PATH:/usr/sbin:/sbin && ip link set lo up && "
                           "ip address del 127.0.0.1/8 dev lo && " +
                               command,
                           {std::getenv("COHORT_RUN"), std::getenv("ACTOR")});
  };
  if (finish_there("ip address show dev lo | grep -q inet6").code != 0)
    GTEST_SKIP() << "no network of its own with ::1";
  const Finished run =
      finish_there("exec \"$0\" --standalone --workers=2 \"$1\" show=TF_CONFIG show=MASTER_ADDR");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("TF_CONFIG={\"cluster\":{\"worker\":[\"[::1]:"));
  EXPECT_THAT(run.output, HasSubstr("[worker:1] MASTER_ADDR=::1\n"));
}

// Memory.

// In a mount namespace, where a group's files are what the test writes: worker:1 plays the kernel.
TEST(LauncherMemory, ThatAControlGroupLacksIsWhyATaskWasKilled) {
  const auto finish_there = [](const std::string& command) {
    return finish_unshared("-rm",
                           "mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && "
                           "echo oom 0 oom_kill 0 > memory.events && "
                           "echo 90000000 > memory.max && " +
                               command,
                           {std::filesystem::absolute(std::getenv("COHORT_RUN"))});
  };
  if (finish_there("true").code != 0) GTEST_SKIP() << "may not mount";
  const Finished run = finish_there(
      "exec \"$0\" --standalone --workers=2 /bin/sh -c '[ $RANK = 0 ] && sleep 60; "
      "echo oom 1 oom_kill 1 > memory.events; kill -9 $$'");
  EXPECT_EQ(run.code, 128 + SIGKILL);
  EXPECT_THAT(run.errors,
              HasSubstr("worker:1 was killed by SIGKILL: its control group was out of memory "
                        "(limit 90000000 bytes); ending worker:0\n"));
}

// Inside another launcher.

TEST(LauncherInside, AnotherLauncherRunsTheProgramAsItIs) {
  const auto expect = [](const std::string& rank_variable, const std::string& rank,
                         std::map<std::string, std::string> others,
                         const std::string& rank_inside = " is unset") {
    SCOPED_TRACE(rank_variable + " " + rank);
    others[rank_variable] = rank;
    Launch launch = {.flags = {"--workers=3"},
                     .actions = {"show=COHORT_JOB_ID", "exit=6"},
                     .environment = others};
    const Finished run = finish(launch);
    EXPECT_EQ(run.code, 6);
    EXPECT_EQ(run.output, "COHORT_JOB_ID is unset\n");
    EXPECT_EQ(run.errors.empty(), rank != "0") << "the first one says so: " << run.errors;

    launch.flags.push_back("--standalone");
    launch.actions = {"show=" + rank_variable};
    const Finished standalone = finish(launch);
    EXPECT_EQ(standalone.code, 0) << standalone.errors;
    EXPECT_EQ(shown(standalone.output, "worker:2", rank_variable), rank_inside);
  };
  expect("SLURM_PROCID", "1", {{"SLURM_NTASKS", "4"}});
  expect("SLURM_PROCID", "0", {{"SLURM_STEP_NUM_TASKS", "2"}, {"ENVIRONMENT", "BATCH"}});
  expect("OMPI_COMM_WORLD_RANK", "3", {{"OMPI_COMM_WORLD_SIZE", "4"}});
  expect("PMI_RANK", "0", {{"PMI_SIZE", "2"}});
  expect("PMIX_RANK", "1", {{"WORLD_SIZE", "2"}});
  for (const char* rank : {"0", "3"}) {
    expect("RANK", rank, {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, "2");
    // A pod stays the one that it is.
    expect("JOB_COMPLETION_INDEX", rank, {{"COHORT_KUBERNETES_PODS", "4"}}, rank);
  }
}

TEST(LauncherInside, ATaskOfAClusterInTfConfigRunsTheProgramAsItIs) {
  const std::string cluster = R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": )";
  for (const char* task : {R"({"type": "worker", "index": 0}})", R"({"type": "ps", "index": 0}})",
                           R"({"type": "evaluator", "index": 0}})"}) {
    Launch launch = {.flags = {"--workers=2"},
                     .actions = {"show=TF_CONFIG"},
                     .environment = {{"TF_CONFIG", cluster + task}, {"OMP_NUM_THREADS", "1"}}};
    const Finished run = finish(launch);
    EXPECT_EQ(run.output, "TF_CONFIG=" + cluster + task + "\n");
    EXPECT_THAT(run.errors, HasSubstr("of TF_CONFIG: they are the cluster"));
    launch.flags.push_back("--standalone");
    EXPECT_THAT(shown(finish(launch).output, "worker:1", "TF_CONFIG"), HasSubstr("127.0.0.1:"));
  }
}

TEST(LauncherInside, WhatDoesNotSayHowManyThereAreIsAnError) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"TF_CONFIG", "{"}, {"PMIX_RANK", "0"}}) {
    Launch launch = {.environment = {{name, value}}, .program = "/bin/true"};
    const Finished run = finish(launch);
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.errors, AllOf(HasSubstr(name), HasSubstr("--standalone")));
    launch.flags = {"--standalone"};
    EXPECT_EQ(finish(launch).code, 0);
  }
}

TEST(LauncherInside, ARankOrANumberOfTasksThatIsNoneIsAnError) {
  const auto expect = [](const std::map<std::string, std::string>& variables,
                         const std::string& mistake) {
    Launch launch = {.environment = variables, .program = "/bin/true"};
    const Finished run = finish(launch);
    EXPECT_EQ(run.code, 2) << mistake;
    EXPECT_THAT(run.errors, AllOf(HasSubstr(mistake), HasSubstr("--standalone")));
    launch.flags = {"--standalone"};
    EXPECT_EQ(finish(launch).code, 0) << mistake;
  };
  expect({{"RANK", "x"}, {"WORLD_SIZE", "2"}},
         "RANK: found \"x\"; expected an integer from 0 to 1, as in RANK=0");
  expect({{"RANK", "0"}, {"WORLD_SIZE", "2 "}},
         "WORLD_SIZE: found \"2 \"; expected an integer from 1 to 1000000");
  expect({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "4"}}, "SLURM_PROCID: found \"x\"");
  expect({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}, "SLURM_PROCID: found \"2\"");
  expect({{"OMPI_COMM_WORLD_RANK", "-1"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
         "OMPI_COMM_WORLD_RANK: found \"-1\"");
  expect({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}, "PMI_SIZE: found \"0\"");
  expect({{"PMIX_RANK", "1"}, {"WORLD_SIZE", ""}}, "WORLD_SIZE: found an empty value");
  expect({{"JOB_COMPLETION_INDEX", "4"}, {"COHORT_KUBERNETES_PODS", "4"}},
         "JOB_COMPLETION_INDEX: found \"4\"");
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
           Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}},
           Variables{{"TF_CONFIG", "{}"}},
           Variables{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]},
                                       "task": {"type": "worker", "index": 0}})"}},
           Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
           Variables{{"JOB_COMPLETION_INDEX", "3"}},
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
  expect({"--workers=1001"}, "/bin/true", 2, "at most 1000, auto or gpu");
  expect({"--timeout=-1"}, "/bin/true", 2, "--timeout=-1 is not allowed");
  expect({"--workers"}, "none", 2, "--workers needs a value");
  expect({"--worker=2"}, "/bin/true", 2, "unknown flag --worker; did you mean --workers?");
  expect({"--nodes=2"}, "/bin/true", 2, "unknown flag --nodes");
  expect({"--nproc-per-node=2"}, "/bin/true", 2, "--nproc-per-node; did you mean --workers?");
  expect({"--max_restarts=2"}, "/bin/true", 2, "--max_restarts; did you mean --restarts?");
  expect({"-np"}, "2", 2, "unknown flag -np; did you mean --workers?");
  expect({"--local-ranks-filter=0"}, "/bin/true", 2, "did you mean --show?");
  expect({"--redirects", "3"}, "/bin/true", 2, "unknown flag --redirects; did you mean --log_dir?");
  expect({"--rdzv-backend=c10d"}, "/bin/true", 2, "did you mean --rendezvous?");
  expect({"--master_port=1"}, "/bin/true", 2, "did you mean --rendezvous?");
  expect({"-m"}, "train", 2, "unknown flag -m; did you mean cohort-run python3 -m MODULE?");
  expect({"--log_dir="}, "/bin/true", 2, "--log_dir= is not allowed: expected a value");
  expect({"--show="}, "/bin/true", 2, "--show= is not allowed: expected a value");
  expect({"--workers=2", "--ps=1", "--show=ps,worker:2"}, "/bin/true", 2,
         "there is no task \"worker:2\": expected names of worker:0 to worker:1, ps:0, or of jobs");
  expect({"--show=chief"}, "/bin/true", 2, "there is no task \"chief\"");
  expect({"--show=,worker:0"}, "/bin/true", 2, "there is no task \"\"");
  expect({"--numa-binding=node"}, "/bin/true", 2, "did you mean --bind=cores?");
  expect({"--bind=node"}, "/bin/true", 2, "expected one of none, cores");
  expect({"--restarts=-1"}, "/bin/true", 2, "--restarts=-1 is not allowed");
  expect({"--task_restarts=-1"}, "/bin/true", 2, "--task_restarts=-1 is not allowed");
  expect({"--task_restarts=1"}, "/bin/true", 2, "--task_restarts=1 is for jobs with --ps");
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

// Where the system does not say that there is none, but that it does not look.
TEST(LauncherFlags, ProgramThatCannotBeReachedIsNotCalledMissing) {
  const TemporaryFolder folder("launcher");
  const auto expect = [](const std::string& program, int code, const std::string& why) {
    const Finished run = finish({.program = program});
    EXPECT_EQ(run.code, code) << run.errors;
    EXPECT_THAT(run.errors, HasSubstr("cannot reach " + program + ": " + why));
  };
  const std::string loop = folder.path() + "/loop", closed = folder.path() + "/closed";
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  expect(loop, 2, "Too many levels of symbolic links");
  if (geteuid() == 0) return;  // may enter every folder
  ASSERT_EQ(mkdir(closed.c_str(), 0), 0);
  expect(closed + "/program", 17, "Permission denied");
  ASSERT_EQ(rmdir(closed.c_str()), 0);
}

TEST(LauncherFlags, ProgramOnAFileSystemWithoutExecutionIsNotToldToChangeItsMode) {
  const TemporaryFolder folder("launcher");
  const auto finish_there = [&](const std::string& command) {
    return finish_unshared(
        "-rm", "mount -t tmpfs -o noexec none \"$0\" && cp /bin/true \"$0\" && " + command,
        {folder.path(), std::getenv("COHORT_RUN")});
  };
  if (finish_there("true").code != 0) GTEST_SKIP() << "may not mount";
  const Finished run = finish_there("exec \"$1\" --standalone \"$0\"/true");
  EXPECT_EQ(run.code, 17) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("/true lies on a file system that is mounted noexec"));
  EXPECT_THAT(run.errors, Not(HasSubstr("chmod")));
}

TEST(LauncherFlags, HelpNamesThemAll) {
  const Finished run = finish({.flags = {"--help"}, .program = "none"});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.output, HasSubstr("Usage: cohort-run [flags] PROGRAM [ARGS...]\n"));
  for (const char* name :
       {"workers", "ps", "chief", "evaluator", "restarts", "task_restarts", "grace", "timeout",
        "log_dir", "show", "bind", "standalone", "quiet", "no_prefix", "version"}) {
    EXPECT_THAT(run.output, HasSubstr(std::string("  --") + name + " "));
  }
}

TEST(LauncherFlags, VersionIsAllThatIsPrintedWhereItIsAskedFor) {
  const Finished run = finish({.flags = {"--version"}, .program = "none"});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.output, "cohort-run " COHORT_VERSION "\n");
  EXPECT_EQ(finish({.flags = {"--version", "--workers=2"}, .actions = {"print=ran"}}).output,
            run.output);
}

TEST(LauncherFlags, ProgramThatCannotBeRunIsAnError) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/script";
  const auto expect = [&](const std::string& text, const std::string& why) {
    SCOPED_TRACE(text);
    write_script(path, text);
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
  write_script(other, "#!/no/such/interpreter\n");
  expect("#!" + other + "\n", ": No such file or directory");
}

TEST(LauncherFlags, ProgramOfAnotherMachineIsNotTakenForAScript) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/program", script = folder.path() + "/script";
  const auto expect = [](const std::string& program, const std::string& why) {
    const Finished run = finish({.program = program});
    EXPECT_EQ(run.code, 17) << run.errors;
    EXPECT_THAT(run.errors, HasSubstr("cannot run " + program + ": " + why));
  };
  // What says that it is for s390x. Nothing says of which kind it is, or an emulator of which the
  // system knows might run it.
  std::string header(64, '\0');
  header.replace(0, 6, "\177ELF\2\2");
  header[19] = 22;
  write_script(path, header);
  expect(path, "it is a program for s390x, and this machine is ");
  write_script(script, "#!" + path + "\nexit 0\n");
  expect(script, "its interpreter " + path + " is a program for s390x, and this machine is ");
  write_script(path, std::string("exit 0\n\0", 8));
  expect(path, "it is no program of this machine (");
}

TEST(LauncherFlags, ProgramMayBeATextForTheShell) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/text";
  write_script(path, "echo \"$# $1\"\n");
  const Finished run = finish({.actions = {"a b"}, .program = path});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.output, "[worker:0] 1 a b\n");
}

}  // namespace
}  // namespace cohort::testing
