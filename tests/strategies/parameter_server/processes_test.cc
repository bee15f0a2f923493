// Tasks as processes that are killed at any moment, counting: every push adds 1 to every element,
// so that the value is the number of pushes that were applied.
#include <atomic>
#include <cmath>
#include <thread>

#include "core/base/random.h"
#include "tests/strategies/parameter_server/process.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

constexpr int64_t kElements = 1 << 18;

std::unique_ptr<Process> start(std::vector<std::string> arguments, const std::string& output) {
  return std::make_unique<Process>("tests/strategies/parameter_server/actor", std::move(arguments),
                                   output);
}

// The value of all elements; -1 where they differ.
double value_of(ParameterClient& client) {
  Tensor target(DType::kFloat32, {kElements});
  client.pull({.shard = "counter", .target = target});
  const auto values = target.values<float>();
  for (const float value : values)
    if (value != values[0]) return -1;
  return values[0];
}

TEST(KilledWorker, LeavesWholePushesOnly) {
  const auto [seed, kills] = trials(1, 5);
  RandomStream random(seed);
  const TemporaryFolder folder("ps");
  TestServer server;
  const std::string address = server.address().text(), output = folder.path() + "/out";
  constexpr int kPushes = 12;
  const auto count = [&](int pushes) {
    return start({"worker", address, "worker:0", std::to_string(pushes)}, output);
  };
  for (uint64_t i = 0; i < kills; ++i) {
    const auto worker = count(1'000'000);
    const int before = worker->lines("acknowledged");
    ASSERT_TRUE(worker->wait_for_lines("acknowledged", before + 2));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(8000)));
    worker->kill_now();
  }
  const auto last = count(kPushes);
  EXPECT_EQ(last->join(), 0);
  const auto client = server.client("worker:1");
  const double value = value_of(*client);
  const int acknowledged = last->lines("acknowledged");
  EXPECT_EQ(value, static_cast<double>(server->statistics().pushes_applied));
  EXPECT_GE(value, acknowledged);
  EXPECT_LE(value, acknowledged + static_cast<double>(kills))
      << "at most one push was under way at each kill";
}

TEST(KilledWorker, IsNotWaitedForInSynchronousTrainingAndWelcomeBack) {
  const TemporaryFolder folder("ps");
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const auto begin = [&](int worker, int rounds) {
    return start(
        {"rounds", server.address().text(), str("worker:", worker), std::to_string(rounds)},
        str(folder.path(), "/", worker));
  };
  const auto first = begin(0, 1'000'000);
  auto second = begin(1, 1'000'000);
  ASSERT_TRUE(second->wait_for_lines("round", 20));
  second->kill_now();
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_TRUE(first->wait_for_lines("round", first->lines("round") + 20));
  const auto stall = std::chrono::steady_clock::now() - killed;
  EXPECT_LT(stall, std::chrono::seconds(10)) << "3 s, on a machine that is not busy";
  EXPECT_NE(server.line("worker:1 has gone"), "");
  second = begin(1, 20);
  EXPECT_EQ(second->join(), 0);
  ASSERT_TRUE(first->wait_for_lines("round", first->lines("round") + 20)) << "it has left";
  const auto client = server.client("worker:2");
  const auto statistics = server->statistics();
  EXPECT_GE(statistics.pushes_counted, 20u + 15u) << "updates of two workers";
  const double value = value_of(*client);
  EXPECT_GE(value, 2 * static_cast<double>(statistics.pushes_applied));
  EXPECT_EQ(std::fmod(value, 2), 0) << "one gradient counts for two where there is one";
}

TEST(FrozenWorker, IsNotWaitedForInSynchronousTrainingAndWelcomeBack) {
  const TemporaryFolder folder("ps");
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const auto begin = [&](int worker) {
    return start({"rounds", server.address().text(), str("worker:", worker), "1000000"},
                 str(folder.path(), "/", worker));
  };
  const auto first = begin(0), second = begin(1);
  ASSERT_TRUE(second->wait_for_lines("round", 20));
  second->freeze();
  const auto frozen = std::chrono::steady_clock::now();
  ASSERT_TRUE(first->wait_for_lines("round", first->lines("round") + 20));
  const auto stall = std::chrono::steady_clock::now() - frozen;
  EXPECT_LT(stall, std::chrono::seconds(20)) << "5 s, on a machine that is not busy";
  EXPECT_NE(server.line("worker:1 has gone"), "");
  const uint64_t counted = server->statistics().pushes_counted;
  second->send(SIGCONT);
  ASSERT_TRUE(second->wait_for_lines("round", second->lines("round") + 30));
  EXPECT_GE(server->statistics().pushes_counted, counted + 15) << "updates of two workers again";
  const auto client = server.client("worker:2");
  EXPECT_EQ(std::fmod(value_of(*client), 2), 0) << "one gradient counts for two where there is one";
}

// A worker that counts, while its server is killed again and again, and started as `more` says.
struct CountedPushes {
  double value = 0;
  int acknowledged = 0;
  std::string output;  // of all servers

  CountedPushes(const Trials& kills, const std::vector<std::string>& more) {
    RandomStream random(kills.seed);
    const TemporaryFolder folder("ps");
    const launcher::ReservedPort port;
    const std::string path = folder.path() + "/out";
    std::vector<std::string> arguments = {"server", port.address(), folder.path() + "/ps-0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto server = start(arguments, path);
    EXPECT_TRUE(server->wait_for_lines("serving", 1));
    const TensorSpec spec{DType::kFloat32, {kElements}};
    ParameterClient client(Address::parse(port.address()),
                           {.task = "worker:0", .job_id = "job", .transport = transport()},
                           no_environment);
    client.create(whole_shard("counter", spec),
                  [&] { return Tensor::zeros(spec.dtype, spec.shape); });
    client.snapshot(folder.path() + "/ps-0");
    std::atomic<bool> stop = false;
    std::atomic<int> pushes = 0;
    std::thread worker([&] {
      const Tensor gradient = Tensor::full(spec.dtype, spec.shape, -1);
      while (!stop) {
        client.push({.shard = "counter", .gradient = gradient, .learning_rate = 1});
        ++pushes;
      }
    });
    for (uint64_t i = 0; i < kills.count; ++i) {
      const int before = pushes;
      while (pushes < before + 40) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(20'000)));
      server->kill_now();
      server = start(arguments, path);
    }
    const int before = pushes;
    while (pushes < before + 3) std::this_thread::yield();
    stop = true;
    worker.join();
    acknowledged = pushes;
    value = value_of(client);
    client.shut_down();
    EXPECT_EQ(server->join(), 0);
    output = read_file(path);
  }

  // What each server printed when the first push after its start showed what it lacked.
  int lost() const {
    int lost = 0;
    for (size_t at = output.find("lost="); at != std::string::npos;
         at = output.find("lost=", at + 1))
      lost += std::atoi(output.c_str() + at + 5);
    return lost;
  }
};

TEST(KilledServer, ComesBackFromItsSnapshotAndCountsWhatIsLost) {
  const CountedPushes counted(trials(2, 4), {});
  EXPECT_EQ(counted.value, counted.acknowledged - counted.lost()) << counted.output;
}

TEST(KilledServer, WithALogLosesNothing) {
  const CountedPushes counted(trials(3, 4), {"30", "log"});
  EXPECT_EQ(counted.value, counted.acknowledged) << counted.output;
  EXPECT_EQ(counted.lost(), 0) << counted.output;
  EXPECT_NE(counted.output.find("changes from the log"), std::string::npos) << counted.output;
}

// A server that takes snapshots when it is asked to, or told to end, and workers that count at it.
struct Restartable {
  const TemporaryFolder folder{"ps"};
  const launcher::ReservedPort port;
  const std::string snapshots = folder.path() + "/ps-0", output = folder.path() + "/out";
  std::unique_ptr<Process> server = serve();

  std::unique_ptr<Process> serve() const {
    return start({"server", port.address(), snapshots, "0"}, output);
  }
  void work(const std::string& pushes) const {
    EXPECT_EQ(start({"worker", port.address(), "worker:1", pushes}, output)->join(), 0);
  }
  ParameterClientOptions client_options() const {
    return {.task = "worker:0", .job_id = "job", .transport = transport()};
  }
};

TEST(KilledServer, CountsWhatIsLostOfWorkersThatHaveEnded) {
  Restartable job;
  job.work("3");
  ParameterClient client(Address::parse(job.port.address()), job.client_options(), no_environment);
  client.snapshot(job.snapshots);
  job.work("12");
  job.server->kill_now();
  job.server = job.serve();
  ASSERT_TRUE(job.server->wait_for_lines("lost=", 1)) << read_file(job.output);
  EXPECT_EQ(job.server->lines("lost=12 pushes of worker:1"), 1) << read_file(job.output);
  EXPECT_EQ(value_of(client), 3);
  EXPECT_EQ(client.statistics().pushes_lost, 12u);
}

TEST(StoppedServer, LosesNothing) {
  Restartable job;
  job.work("5");
  job.server->send(SIGTERM);
  EXPECT_EQ(job.server->join(), 0) << read_file(job.output);
  job.server = job.serve();
  ParameterClient client(Address::parse(job.port.address()), job.client_options(), no_environment);
  EXPECT_EQ(value_of(client), 5);
  client.leave();
  EXPECT_EQ(client.statistics().pushes_lost, 0u) << read_file(job.output);
}

TEST(FrozenServer, IsNoticedBeforeTheTimeOfACallIsOver) {
  const TemporaryFolder folder("ps");
  const launcher::ReservedPort port;
  const auto server = start({"server", port.address(), folder.path()}, folder.path() + "/out");
  ASSERT_TRUE(server->wait_for_lines("serving", 1));
  ParameterClient client(Address::parse(port.address()),
                         {.task = "worker:0",
                          .job_id = "job",
                          .timeout = std::chrono::seconds(8),
                          .transport = transport()},
                         no_environment);
  client.statistics();
  server->freeze();
  EXPECT_ERROR(client.statistics(), Code::kUnavailable, port.address());
  server->send(SIGCONT);
  EXPECT_EQ(client.statistics().shards, 0u) << "it is there again";
}

}  // namespace
}  // namespace cohort::testing
