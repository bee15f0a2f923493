// Jobs with parameter servers whose tasks are processes, started in any order and killed.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <memory>

#include <gmock/gmock.h>

#include "core/base/program.h"
#include "core/base/random.h"
#include "tests/strategies/cluster/launcher/launched.h"
#include "tests/strategies/parameter_server/process.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two servers and two workers, each of which may be started more than once.
class Job {
 public:
  explicit Job(std::vector<std::string> flags) : flags_(std::move(flags)) {}

  std::unique_ptr<Process> start(const std::string& job, int index) const {
    const auto list = [](const launcher::ReservedPort* ports) {
      return str("[\"", ports[0].address(), "\", \"", ports[1].address(), "\"]");
    };
    const std::string config =
        str("{\"cluster\": {\"ps\": ", list(servers_), ", \"worker\": ", list(workers_),
            "}, \"task\": {\"type\": \"", job, "\", \"index\": ", index, "}}");
    return std::make_unique<Process>(
        std::getenv("TRAINER"), flags_, output(job, index),
        std::map<std::string, std::string>{
            {"TF_CONFIG", config}, {"COHORT_JOB_ID", "job"}, {"OMP_NUM_THREADS", "1"}});
  }
  std::string output(const std::string& job, int index) const {
    return str(folder_.path(), "/", job, "-", index);
  }
  // The last number that a worker has printed as NAME=NUMBER.
  double said(int worker, const std::string& name) const {
    const std::string text = read_file(output("worker", worker));
    const size_t at = text.rfind(name + "=");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 1);
  }
  std::string all() const {
    std::string text;
    for (const char* job : {"ps", "worker"})
      for (const int index : {0, 1})
        text +=
            str("--- ", job, ":", index, "\n",
                std::filesystem::exists(output(job, index)) ? read_file(output(job, index)) : "");
    return text;
  }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_{"ps"};
  launcher::ReservedPort servers_[2], workers_[2];
  std::vector<std::string> flags_;
};

// Waits for a snapshot that was begun from now on, when all shards are there: for the second, as
// the first may be under way.
bool has_whole_snapshot(const std::string& folder) {
  const auto written = [&] {
    std::error_code missing;
    return std::filesystem::last_write_time(str(folder, "/snapshot.json"), missing);
  };
  const auto is_next = [&, before = written()]() mutable {
    return std::exchange(before, written()) != before;
  };
  return eventually(is_next) && eventually(is_next);
}

constexpr int kStepsOfAnEpoch = 256 / 2 / 8;

TEST(Job, StartsInAnyOrderAndALostWorkerTakesItsPlaceAgain) {
  for (const char* staleness : {"-1", "4", "0"}) {
    SCOPED_TRACE(str("max_staleness ", staleness));
    const Job job({"--epochs=30", str("--max_staleness=", staleness)});
    const auto first = job.start("worker", 0);
    auto second = job.start("worker", 1);
    const auto server_1 = job.start("ps", 1), server_0 = job.start("ps", 0);
    ASSERT_TRUE(second->wait_for_lines("step", 10)) << job.all();
    second->kill_now();
    second = job.start("worker", 1);
    EXPECT_EQ(first->join(), 0) << job.all();
    EXPECT_EQ(second->join(), 0) << job.all();
    EXPECT_GE(second->lines("step"), 30 * kStepsOfAnEpoch + 10);
    EXPECT_LT(job.said(0, "loss"), 0.1) << job.all();
    EXPECT_EQ(job.said(0, "lost_by_report"), 0);
  }
}

TEST(Job, AKilledServerComesBackFromItsSnapshotAndTrainingGoesOn) {
  RandomStream random(trials(4, 1).seed);
  const TemporaryFolder snapshots("ps");
  const Job job({"--epochs=60", "--snapshots=" + snapshots.path()});
  std::unique_ptr<Process> servers[2] = {job.start("ps", 0), job.start("ps", 1)};
  const auto first = job.start("worker", 0), second = job.start("worker", 1);
  for (const int victim : {0, 1, 0}) {
    const int before = first->lines("step");
    ASSERT_TRUE(first->wait_for_lines("step", before + 60)) << job.all();
    ASSERT_TRUE(has_whole_snapshot(str(snapshots.path(), "/ps-", victim))) << job.all();
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(20'000)));
    servers[victim]->kill_now();
    servers[victim] = job.start("ps", victim);
  }
  EXPECT_EQ(first->join(), 0) << job.all();
  EXPECT_EQ(second->join(), 0) << job.all();
  EXPECT_LT(job.said(0, "loss"), 0.1) << job.all();
  const double iterations = job.said(0, "iterations");
  EXPECT_LE(iterations, 2 * 60 * kStepsOfAnEpoch);
  EXPECT_GT(iterations, 60 * kStepsOfAnEpoch);
}

TEST(Job, AServerThatIsStoppedWhileOthersTrainIsToBeStartedAgain) {
  const TemporaryFolder snapshots("ps");
  const Job job({"--epochs=60", "--snapshots=" + snapshots.path()});
  std::unique_ptr<Process> servers[2] = {job.start("ps", 0), job.start("ps", 1)};
  const auto first = job.start("worker", 0), second = job.start("worker", 1);
  ASSERT_TRUE(second->wait_for_lines("step", 1)) << job.all();
  second->freeze();  // else they may be done before the server has ended
  ASSERT_TRUE(first->wait_for_lines("step", 60)) << job.all();
  servers[1]->send(SIGTERM);
  EXPECT_EQ(servers[1]->join(), kExitResumable) << job.all();
  servers[1] = job.start("ps", 1);
  second->send(SIGCONT);
  EXPECT_EQ(first->join(), 0) << job.all();
  EXPECT_EQ(second->join(), 0) << job.all();
  EXPECT_EQ(job.said(0, "lost_by_report"), 0) << job.all();
  for (const auto& server : servers) {
    server->send(SIGTERM);
    EXPECT_EQ(server->join(), 0) << "the job is done\n" << job.all();
  }
}

TEST(Job, AServerThatIsStoppedWhenAWorkerWasKilledIsToBeStartedAgain) {
  const Job job({"--epochs=1000000"});
  std::unique_ptr<Process> servers[2] = {job.start("ps", 0), job.start("ps", 1)};
  const auto worker = job.start("worker", 0);
  ASSERT_TRUE(worker->wait_for_lines("step", 1)) << job.all();
  worker->kill_now();
  for (const auto& server : servers) {
    server->send(SIGTERM);
    EXPECT_EQ(server->join(), kExitResumable) << "it may come back\n" << job.all();
  }
}

// 42 would say that it has.
TEST(Job, AServerThatIsStoppedAndCannotSaveEndsWithThatError) {
  const TemporaryFolder snapshots("ps");
  const Job job({"--epochs=60", "--snapshots=" + snapshots.path()});
  std::unique_ptr<Process> servers[2] = {job.start("ps", 0), job.start("ps", 1)};
  const auto first = job.start("worker", 0), second = job.start("worker", 1);
  const std::string own = snapshots.path() + "/ps-1", other = snapshots.path() + "/other";
  write_file_atomically(other, "no folder");
  const auto exchange = [&] {
    ASSERT_EQ(renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  };
  ASSERT_TRUE(first->wait_for_lines("step", 60)) << job.all();
  ASSERT_TRUE(has_whole_snapshot(own)) << job.all();
  exchange();
  servers[1]->send(SIGTERM);
  EXPECT_EQ(servers[1]->join(), exit_code(Code::kNotFound)) << job.all();
  EXPECT_GE(servers[1]->lines("ps:1: the last snapshot is not written: cannot create the folder"),
            1)
      << job.all();
  exchange();
  servers[1] = job.start("ps", 1);
  EXPECT_EQ(first->join(), 0) << job.all();
  EXPECT_EQ(second->join(), 0) << job.all();
}

TEST(Job, RunsUnderCohortRun) {
  for (const char* staleness : {"-1", "0"}) {
    SCOPED_TRACE(str("max_staleness ", staleness));
    const Finished run = finish({.flags = {"--workers=2", "--ps=2", "--grace=20", "--standalone"},
                                 .actions = {"--epochs=20", str("--max_staleness=", staleness)},
                                 .environment = {{"OMP_NUM_THREADS", "1"}},
                                 .program = std::getenv("TRAINER")});
    EXPECT_EQ(run.code, 0) << run.output << run.errors;
    const auto losses = lines_of(run.output, "[worker:0] worker:0 loss=");
    ASSERT_EQ(losses.size(), 1u) << run.output;
    EXPECT_LT(std::stod(losses[0]), 0.2) << run.output;
  }
}

// Two workers and two servers under cohort-run, which train until they are stopped, or as
// `actions` say.
class LaunchedJob {
 public:
  explicit LaunchedJob(std::vector<std::string> flags,
                       std::vector<std::string> actions = {"--epochs=1000000"})
      : launched_({.flags = with_tasks(std::move(flags)),
                   .actions = with_snapshots(std::move(actions)),
                   .environment = {{"OMP_NUM_THREADS", "1"}},
                   .program = std::getenv("TRAINER")}) {}

  // Until both workers have made a step since they were started so many times.
  void wait_for_steps(int starts) {
    for (const std::string worker : {"worker:0", "worker:1"}) wait_for_step(worker, starts);
  }
  void wait_for_step(const std::string& worker, int starts) {
    launched_.wait_for_output(str("[", worker, "] started"), starts);
    const int made = steps(worker);
    launched_.wait_for_output(step(worker), made + 1);
  }
  // That it has said to have made.
  int steps(const std::string& worker) const {
    return static_cast<int>(lines_of(launched_.output(), step(worker)).size());
  }
  // When it has been started once.
  pid_t pid_of(const std::string& task) {
    launched_.wait_for_output(str("[", task, "] started"));
    return std::stoi(lines_of(launched_.output(), str("[", task, "] pid=")).at(0));
  }
  bool has_snapshot(int server) const {
    return std::filesystem::exists(str(snapshots_.path(), "/ps-", server, "/snapshot.json"));
  }
  Launched& run() { return launched_; }

 private:
  static std::string step(const std::string& worker) {
    return str("[", worker, "] ", worker, " step");
  }
  std::vector<std::string> with_snapshots(std::vector<std::string> actions) const {
    actions.push_back("--snapshots=" + snapshots_.path());
    return actions;
  }
  static std::vector<std::string> with_tasks(std::vector<std::string> flags) {
    for (const char* flag : {"--workers=2", "--ps=2", "--standalone"}) flags.emplace_back(flag);
    return flags;
  }

  const TemporaryFolder snapshots_{"ps"};
  Launched launched_;
};

constexpr char kResumable[] = " exited with code 42 (resumable)";

TEST(JobUnderCohortRun, SavesItsStateWhenItIsStoppedAndIsToBeStartedAgain) {
  LaunchedJob job({"--restarts=1"});
  job.wait_for_steps(1);
  job.run().send(SIGTERM);
  EXPECT_EQ(job.run().wait(), kExitResumable);
  const std::string& errors = job.run().errors();
  int resumable = 0;
  for (size_t at = errors.find(kResumable); at != std::string::npos;
       at = errors.find(kResumable, at + 1))
    ++resumable;
  EXPECT_EQ(resumable, 4) << errors;
  EXPECT_THAT(errors, Not(HasSubstr("restarting")));
  for (const int server : {0, 1}) EXPECT_TRUE(job.has_snapshot(server)) << errors;
}

TEST(JobUnderCohortRun, IsStartedAgainWhenAServerIsStopped) {
  LaunchedJob job({"--restarts=1", "--grace=8"});
  job.wait_for_steps(1);
  kill(job.pid_of("ps:1"), SIGTERM);
  job.wait_for_steps(2);
  job.run().send(SIGTERM);
  EXPECT_EQ(job.run().wait(), kExitResumable);
  const std::string& errors = job.run().errors();
  const size_t restart = errors.find("restarting all tasks (restart 1 of 1)");
  ASSERT_NE(restart, std::string::npos) << errors;
  const std::string before = errors.substr(0, restart);
  EXPECT_THAT(before,
              HasSubstr(str("ps:1", kResumable, "; worker:0, worker:1, ps:0 may take 8 s")));
  // They wait for ps:1 until they are asked to stop, too.
  for (const char* task : {"worker:0", "worker:1", "ps:0"})
    EXPECT_THAT(before, HasSubstr(str("then ", task, kResumable)));
}

TEST(JobUnderCohortRun, GoesOnAndLosesNothingWhenAWorkerAndAServerAreKilled) {
  LaunchedJob job({"--task_restarts=1"}, {"--epochs=60", "--log"});
  Launched& run = job.run();
  job.wait_for_steps(1);
  kill(job.pid_of("worker:1"), SIGKILL);
  job.wait_for_step("worker:1", 2);
  kill(job.pid_of("ps:1"), SIGKILL);
  EXPECT_EQ(run.wait(), 0) << run.output() << run.errors();
  for (const char* task : {"worker:1", "ps:1"})
    EXPECT_THAT(run.errors(),
                HasSubstr(str(task, " was killed by SIGKILL (Killed); started again, 1 of 1")));
  EXPECT_THAT(run.output() + run.errors(), Not(HasSubstr("lost=")));
  // Whoever ends last sees the updates of all.
  double iterations = 0;
  for (const std::string worker : {"worker:0", "worker:1"})
    for (const auto& number :
         lines_of(run.output(), str("[", worker, "] ", worker, " iterations=")))
      iterations = std::max(iterations, std::stod(number));
  const int acknowledged = job.steps("worker:0") + job.steps("worker:1");
  EXPECT_GE(iterations, acknowledged);
  EXPECT_LE(iterations, acknowledged + 1) << "one may have been under way when worker:1 was killed";
}

}  // namespace
}  // namespace cohort::testing
