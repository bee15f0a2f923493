// Workers and parameter servers as processes that are killed, stopped and started again.
#include <set>

#include "core/base/random.h"
#include "tests/strategies/coordinator/testing.h"
#include "tests/strategies/parameter_server/process.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

constexpr char kActor[] = "tests/strategies/coordinator/actor";
constexpr char kServer[] = "tests/strategies/parameter_server/actor";

class Processes : public ::testing::Test {
 protected:
  static constexpr size_t kWorkers = 2;

  Processes() : ports_(kWorkers), workers_(kWorkers) {
    for (size_t i = 0; i < kWorkers; ++i) start(i);
  }

  void start(size_t i) {
    workers_[i] = std::make_unique<Process>(
        kActor, std::vector<std::string>{"worker", ports_[i].address(), str("worker:", i)},
        output(i));
  }
  std::string output(size_t i) const { return str(folder_.path(), "/worker-", i); }
  void connect(CoordinatorOptions options = {}) {
    std::vector<std::string> addresses;
    for (const auto& port : ports_) addresses.push_back(port.address());
    options.job_id = "job";
    options.notice = lines_.writer();
    ClusterSpec::Jobs jobs{{"worker", addresses}};
    if (!parameter_servers_.empty()) jobs["ps"] = parameter_servers_;
    coordinator_ = std::make_unique<ClusterCoordinator>(ClusterSpec(jobs), options, no_environment);
    coordinator_->wait_for_workers();
  }
  uint64_t executed() const { return coordinator_->statistics().executed; }
  // Until so many have been executed, or more.
  bool wait_executed(uint64_t count) const {
    return eventually([&] { return executed() >= count; });
  }
  // So many closures, and checks of all their results.
  std::vector<RemoteValue> schedule(int count) {
    std::vector<RemoteValue> values;
    for (int i = 0; i < count; ++i)
      values.push_back(coordinator_->schedule(doubled_, static_cast<float>(i)));
    return values;
  }
  static void check(const std::vector<RemoteValue>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i].get(kPatience).item(), 2.0 * static_cast<double>(i));
  }

  const TemporaryFolder folder_{"ps"};
  std::vector<launcher::ReservedPort> ports_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::vector<std::string> parameter_servers_;
  Lines lines_;
  const Function doubled_ = doubled();
  std::unique_ptr<ClusterCoordinator> coordinator_;
};

TEST_F(Processes, KilledAndStartedAgainInTheMiddleOfWork) {
  const Trials kills = trials(3, 4);
  RandomStream random(kills.seed);
  connect();
  std::atomic<bool> stop = false;
  std::thread killer([&] {
    for (uint64_t kill = 0; kill < kills.count && !stop; ++kill) {
      const size_t victim = random.below(kWorkers);
      EXPECT_TRUE(wait_executed(executed() + random.below(3000)));
      workers_[victim]->kill_now();
      EXPECT_TRUE(eventually(
          [&] { return stop || coordinator_->statistics().worker_failures == kill + 1; }));
      start(victim);
      coordinator_->wait_for_workers();
    }
    stop = true;
  });
  int rounds = 0;
  for (; !stop || rounds < 3; ++rounds) {
    const auto values = schedule(2000);
    coordinator_->join(kPatience);
    check(values);
  }
  killer.join();
  EXPECT_EQ(coordinator_->statistics().worker_failures, kills.count);
  EXPECT_TRUE(coordinator_->done());
}

// Each function adds 1: what is executed again must not do so twice.
TEST_F(Processes, WhatIsPushedIsAppliedOnceHoweverOftenItIsExecuted) {
  RandomStream random(trials(5, 1).seed);
  const CountedOnServers counted;
  parameter_servers_ = counted.addresses();
  connect();
  const Function add = counted.adding();
  constexpr int kRounds = 6, kFunctions = 150;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t before = executed();
    for (int i = 0; i < kFunctions; ++i) coordinator_->schedule(add, 1.0f);
    const size_t victim = random.below(kWorkers);
    ASSERT_TRUE(wait_executed(before + kFunctions / 4 + random.below(kFunctions / 2)));
    workers_[victim]->kill_now();
    start(victim);
    coordinator_->join(kPatience);
    ASSERT_EQ(counted.value(), (round + 1) * kFunctions);
    coordinator_->wait_for_workers();
  }
  RecordProperty("retried", static_cast<int>(coordinator_->statistics().retried));
}

// Its value is larger than what a worker's process may have.
TEST_F(Processes, AFunctionThatThereIsNoMemoryForIsAnErrorAndTheWorkerServesOn) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer needs the address space for itself";
#endif
  constexpr size_t kGiB = size_t{1} << 30;
  connect();
  check(schedule(100));
  for (const auto& worker : workers_)
    ASSERT_TRUE(worker->limit(RLIMIT_AS, worker->memory("VmSize") + kGiB));
  const Function large = function(
      [](Value x) {
        const Value all = ops::broadcast_to(x, Shape{int64_t{kGiB}});
        return all + all;
      },
      "large");
  for (int i = 0; i < 4; ++i) {
    const RemoteValue value = coordinator_->schedule(large, 1.0f);
    EXPECT_ERROR(value.fetch(kPatience), Code::kResourceExhausted, "memory");
    EXPECT_ERROR(coordinator_->join(kPatience), Code::kResourceExhausted, "memory");
    check(schedule(100));
  }
  EXPECT_EQ(coordinator_->statistics().worker_failures, 0u);
}

// Parameter servers are processes, too.
class ServerProcesses : public Processes {
 protected:
  ServerProcesses() : server_ports_(2), servers_(2) {
    for (size_t i = 0; i < 2; ++i) start_server(i);
    for (const auto& port : server_ports_) parameter_servers_.push_back(port.address());
  }

  std::string snapshots(size_t i) const { return str(folder_.path(), "/ps-", i); }
  void start_server(size_t i) {
    servers_[i] = std::make_unique<Process>(
        kServer,
        // With the grace of a slow machine: what a server counts itself, workers do not report.
        std::vector<std::string>{"server", server_ports_[i].address(), snapshots(i), "30", "none",
                                 "60000"},
        str(folder_.path(), "/server-", i));
  }
  uint64_t executed_by(size_t worker) { return coordinator_->worker_statuses()[worker].executed; }

  std::vector<launcher::ReservedPort> server_ports_;
  std::vector<std::unique_ptr<Process>> servers_;
};

// Each function adds 1. The coordinator notices nothing of a server's end, however often it comes,
// and what a server has lost is what the workers report.
TEST_F(ServerProcesses, AKilledServerComesBackFromItsSnapshotAndWhatIsLostIsCounted) {
  RandomStream random(trials(9, 1).seed);
  const Counted counted(
      {Address::parse(parameter_servers_[0]), Address::parse(parameter_servers_[1])});
  counted.variable()->info();
  for (const int server : {0, 1})
    counted.variable()->session()->client(server).snapshot(snapshots(static_cast<size_t>(server)));
  connect();
  const Function add = counted.adding();
  double functions = 0, lost = 0;
  const auto schedule = [&](int count) {
    for (int i = 0; i < count; ++i) coordinator_->schedule(add, 1.0f);
    functions += count;
  };
  for (const size_t victim : {0, 1, 0, 0, 0}) {
    const uint64_t before = executed();
    schedule(400);
    ASSERT_TRUE(wait_executed(before + 200 + random.below(150)));
    servers_[victim]->kill_now();
    start_server(victim);
    coordinator_->join(kPatience);
    // A worker learns what is lost when it pushes.
    const uint64_t first = executed_by(0), second = executed_by(1);
    while (executed_by(0) == first || executed_by(1) == second) {
      schedule(10);
      coordinator_->join(kPatience);
    }
    lost += coordinator_->take_report().numbers.at("lost_updates");
    ASSERT_EQ(counted.value(0) + counted.value(1) + lost, 2 * functions);
  }
  EXPECT_EQ(coordinator_->statistics().worker_failures, 0u);
  EXPECT_EQ(coordinator_->statistics().failed, 0u);
  double printed = 0;
  for (size_t i = 0; i < kWorkers; ++i) {
    const std::string text = read_file(output(i));
    for (size_t at = text.find("lost="); at != std::string::npos; at = text.find("lost=", at + 1))
      printed += std::atof(text.c_str() + at + 5);
  }
  EXPECT_EQ(printed, lost);
  RecordProperty("lost", static_cast<int>(lost));
}

TEST_F(Processes, AllKilledAtOnce) {
  connect();
  const auto before = schedule(100);
  coordinator_->join(kPatience);
  for (auto& worker : workers_) worker->kill_now();
  check(before);
  const auto values = schedule(100);
  EXPECT_ERROR(coordinator_->join(milliseconds(50)), Code::kDeadlineExceeded, "worker:1");
  for (size_t i = 0; i < kWorkers; ++i) start(i);
  coordinator_->join(kPatience);
  check(values);
  EXPECT_EQ(coordinator_->statistics().worker_failures, 2u);
}

TEST_F(Processes, AFrozenWorkerIsLostAndWelcomedBack) {
  connect();
  coordinator_->schedule(doubled_, 1.0f).get(kPatience);
  workers_[0]->freeze();
  const auto values = schedule(500);
  coordinator_->join(kPatience);
  check(values);
  EXPECT_TRUE(eventually([&] { return lines_.has("worker:0"); }));
  EXPECT_TRUE(eventually([&] { return coordinator_->statistics().workers == 1; }));
  workers_[0]->send(SIGCONT);
  coordinator_->wait_for_workers();
  check(schedule(100));
}

TEST_F(Processes, KilledWhileAnErrorIsPending) {
  connect();
  coordinator_->schedule(failing(), 0.0f);
  EXPECT_TRUE(eventually([&] { return coordinator_->statistics().failed == 1; }));
  workers_[0]->kill_now();
  workers_[1]->kill_now();
  EXPECT_ERROR(coordinator_->join(kPatience), Code::kOutOfRange, "\"failing\"");
  EXPECT_TRUE(coordinator_->done());
}

TEST_F(Processes, DatasetsBeginAgainOnAWorkerThatIsStartedAgain) {
  connect();
  const auto numbers = coordinator_->create_per_worker_dataset("numbers").iterate();
  const auto sum = summing();
  const auto even = [&] {
    std::set<double> found;
    for (int i = 0; i < 20; ++i)
      found.insert(coordinator_->schedule(sum, numbers).get(kPatience).item());
    return found;
  };
  EXPECT_FALSE(even().empty());
  workers_[1]->kill_now();
  EXPECT_EQ(even(), (std::set<double>{0, 2, 4, 6, 8})) << "what pipeline 0 of 2 has";
  workers_[0]->kill_now();
  start(1);
  EXPECT_EQ(even(), (std::set<double>{1, 3, 5, 7, 9})) << "what pipeline 1 of 2 has";
}

TEST_F(Processes, AClosureThatIsLostWithEveryWorkerIsGivenUp) {
  connect({.max_attempts = 2});
  const auto stuck = coordinator_->create_per_worker_dataset("stuck").iterate();
  const auto sum = summing();
  const RemoteValue value = coordinator_->schedule(sum, stuck);
  // It may be lost with one worker after the other, or go from the first that is killed to the
  // next.
  const auto is_over = [&] {
    const auto now = coordinator_->statistics();
    return now.queued + now.in_flight == 0;
  };
  while (!is_over()) {
    ASSERT_TRUE(eventually([&] { return is_over() || coordinator_->statistics().in_flight == 1; }));
    for (auto& worker : workers_) worker->kill_now();
    ASSERT_TRUE(eventually([&] { return coordinator_->statistics().in_flight == 0; }));
    for (size_t i = 0; i < kWorkers; ++i) start(i);
  }
  EXPECT_ERROR(value.fetch(kPatience), Code::kAborted, "2 workers");
  EXPECT_ERROR(coordinator_->join(kPatience), Code::kAborted, "2 workers");
}

TEST_F(Processes, WorkersEndWhenTheirCoordinatorHasBeenKilled) {
  const auto coordinator = std::make_unique<Process>(
      kActor, std::vector<std::string>{"coordinator", ports_[0].address()},
      folder_.path() + "/coordinator");
  ASSERT_TRUE(coordinator->wait_for_lines("executed", 10));
  coordinator->kill_now();
  // Another one takes its place in time.
  const auto next = std::make_unique<Process>(
      kActor, std::vector<std::string>{"coordinator", ports_[0].address()},
      folder_.path() + "/next");
  ASSERT_TRUE(next->wait_for_lines("executed", 10));
  next->kill_now();
  EXPECT_EQ(workers_[0]->join(), 0);
  EXPECT_EQ(workers_[0]->lines("ended"), 1);
}

}  // namespace
}  // namespace cohort::testing
