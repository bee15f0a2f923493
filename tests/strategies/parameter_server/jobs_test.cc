// Jobs with parameter servers whose tasks are processes, started in any order and killed.
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <memory>

#include "core/base/program.h"
#include "core/base/random.h"
#include "tests/strategies/cluster/launcher/launched.h"
#include "tests/strategies/parameter_server/process.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

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
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(str("seed ", kSeed));
  RandomStream random(kSeed);
  const TemporaryFolder snapshots("ps");
  const Job job({"--epochs=60", "--snapshots=" + snapshots.path()});
  std::unique_ptr<Process> servers[2] = {job.start("ps", 0), job.start("ps", 1)};
  const auto first = job.start("worker", 0), second = job.start("worker", 1);
  for (const int victim : {0, 1, 0}) {
    const int before = first->lines("step");
    ASSERT_TRUE(first->wait_for_lines("step", before + 60)) << job.all();
    const auto deadline = std::chrono::steady_clock::now() + kProcessPatience;
    const std::string snapshot = str(snapshots.path(), "/ps-", victim, "/snapshot.json");
    while (!std::filesystem::exists(snapshot))
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << job.all();
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
  ASSERT_TRUE(first->wait_for_lines("step", 60)) << job.all();
  servers[1]->send(SIGTERM);
  EXPECT_EQ(servers[1]->join(), kExitResumable) << job.all();
  servers[1] = job.start("ps", 1);
  EXPECT_EQ(first->join(), 0) << job.all();
  EXPECT_EQ(second->join(), 0) << job.all();
  EXPECT_EQ(job.said(0, "lost_by_report"), 0) << job.all();
  for (const auto& server : servers) {
    server->send(SIGTERM);
    EXPECT_EQ(server->join(), 0) << "the job is done\n" << job.all();
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
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(own + "/snapshot.json"); }));
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

}  // namespace
}  // namespace cohort::testing
