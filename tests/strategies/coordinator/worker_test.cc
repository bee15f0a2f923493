// A worker: its thread, without a network; when its server ends, and which task it is.
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "strategies/coordinator/closure_runner.h"
#include "strategies/coordinator/dataset_registry.h"
#include "tests/strategies/coordinator/testing.h"
#include "tests/testing/gate.h"

namespace cohort::testing {
namespace {

using namespace coordinator;

// --- Its thread

// They are counted.
class Answers final : public ClosureRunner::Answers {
 public:
  void send(const FromWorker& message) override {
    missing_ += message.missing.size();
    for (const Result& result : message.results) ++(result.returned ? returned_ : results_);
  }
  bool is_drained() const override { return true; }
  size_t results() const { return results_; }
  size_t returned() const { return returned_; }
  size_t missing() const { return missing_; }

 private:
  std::atomic<size_t> results_ = 0, returned_ = 0, missing_ = 0;
};

constexpr size_t kMaxBytes = 1 << 20;

Attach attach() { return {.job_id = "job", .task = "chief:0", .worker = "worker:0"}; }

// Its thread is at something until the gate opens.
class BusyRunner : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    [[maybe_unused]] static const bool once = [] {
      register_dataset("made late", [](const InputContext&) {
        gate_.pass();
        return data::range(1);
      });
      return true;
    }();
  }

  void begin() {
    gate_.close();
    runner_.take({Create{.resource = 1, .what = CreateIterator{"made late"}}});
    EXPECT_TRUE(eventually([] { return gate_.holds_somebody(); }));
  }

  static inline Gate gate_;
  Answers answers_;
  std::atomic<uint64_t> executed_ = 0;
  ClosureRunner runner_{attach(), {Device{}}, kMaxBytes, nullptr, answers_, executed_};
  const OpenInTheEnd guard_{gate_};  // last: the others end after it
};

TEST_F(BusyRunner, CancelsWhatWaitsForItsFunctionBeforeThatComes) {
  runner_.take({coordinator::Run{.id = 1, .function = 7}});
  ASSERT_TRUE(eventually([&] { return answers_.missing() == 1; }));
  begin();
  runner_.take({Define{.function = 7, .error = Error(Code::kInternal, "it was called")}});
  runner_.take({Cancel{}});
  gate_.open();
  EXPECT_TRUE(eventually([&] { return answers_.returned() + answers_.results() == 1; }));
  EXPECT_EQ(answers_.results(), 0u);
}

TEST_F(BusyRunner, KeepsOneOfAFloodOfCancels) {
  begin();
  runner_.take(std::vector<Command>((1 << 16) + 1, Cancel{}));
  EXPECT_NO_THROW(runner_.take({Fetch{.id = 1, .resource = 9}}));
  gate_.open();
  EXPECT_TRUE(eventually([&] { return answers_.results() == 1; }));
}

// More than it takes of closures that wait.
TEST_F(BusyRunner, TakesAnyNumberOfVariablesThatItIsToKeep) {
  begin();
  const Tensor value = Tensor::zeros(DType::kFloat32, {int64_t{kMaxBytes} / 4});
  for (uint64_t id = 2; id < 10; ++id)
    EXPECT_NO_THROW(runner_.take(
        {Create{.resource = id, .what = CreateVariable{.name = str(id), .value = value}}}));
  runner_.take({Fetch{.id = 1, .resource = 9}});
  gate_.open();
  EXPECT_TRUE(eventually([&] { return answers_.results() == 1; }));
}

// What is summed over replicas is set by a function, which a cancelled thread does not finish.
TEST(ClosureRunner, MayBeStoppedWhileItForgets) {
  constexpr int kStops = 20, kForgets = 1000;
  for (int i = 0; i < kStops; ++i) {
    Answers answers;
    std::atomic<uint64_t> executed = 0;
    ClosureRunner runner(attach(), {Device{}}, kMaxBytes, nullptr, answers, executed);
    std::vector<Command> commands{
        Create{.resource = 1,
               .what = CreateVariable{.name = "sum",
                                      .value = floats({0, 0}),
                                      .synchronization = Synchronization::kOnRead,
                                      .aggregation = Aggregation::kSum,
                                      .kept = KeptApart::kSum}},
        Forget{}, Fetch{.id = 1, .resource = 1}};
    for (int n = 0; n < kForgets; ++n) commands.emplace_back(Forget{});
    runner.take(std::move(commands));
    ASSERT_TRUE(eventually([&] { return answers.results() > 0; }));
    runner.stop();
    EXPECT_TRUE(eventually([&] { return runner.has_ended(); }));
  }
}

// --- Its server

TEST(WorkerServer, EndsWhenItHasBeenLeftAlone) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.job_id = "job",
                       .orphaned_after = milliseconds(50),
                       .unclaimed_after = milliseconds(0),
                       .notice = lines.writer()},
                      no_environment);
  std::thread waiting([&] { server.wait(); });
  {
    ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", {port.address()}}}),
                                   {.job_id = "job", .notice = lines.writer()}, no_environment);
    coordinator.wait_for_workers();
    EXPECT_FALSE(lines.has("ending"));
  }
  waiting.join();
  EXPECT_TRUE(lines.has("no coordinator for 50 ms; ending"));
}

TEST(WorkerServer, EndsWhenNobodyHasEverCome) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.unclaimed_after = milliseconds(20), .notice = lines.writer()},
                      no_environment);
  server.wait();
  EXPECT_TRUE(lines.has("since the start"));
}

TEST(WorkerServer, SaysThatNobodyHasEverCome) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()), {.job_id = "job", .notice = lines.writer()},
                      no_environment);
  std::thread waiting([&] { server.wait(); });
  EXPECT_TRUE(eventually([&] {
    return lines.has("waiting for a ClusterCoordinator of chief:0, which has not called for 5 s");
  }));
  ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", {port.address()}}}),
                                 {.job_id = "job", .notice = lines.writer()}, no_environment);
  coordinator.wait_for_workers();
  coordinator.shut_down();
  waiting.join();
}

TEST(WorkerServer, MayWaitForEver) {
  const launcher::ReservedPort port, other;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.job_id = "job",
                       .orphaned_after = milliseconds::max(),
                       .unclaimed_after = milliseconds::max(),
                       .notice = lines.writer()},
                      no_environment);
  std::thread waiting([&] { server.wait(); });
  // Meanwhile it looks whether it is to end.
  WorkerServer(Address::parse(other.address()),
               {.unclaimed_after = milliseconds(200), .notice = [](const std::string&) {}},
               no_environment)
      .wait();
  EXPECT_FALSE(lines.has("ending"));
  ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", {port.address()}}}),
                                 {.job_id = "job", .notice = lines.writer()}, no_environment);
  coordinator.wait_for_workers();
  coordinator.shut_down();
  waiting.join();
  for (const WorkerServerOptions& options :
       {WorkerServerOptions{.orphaned_after = milliseconds(-1)},
        WorkerServerOptions{.unclaimed_after = milliseconds(-1)}})
    EXPECT_ERROR(WorkerServer(Address::parse(other.address()), options, no_environment),
                 Code::kInvalidArgument, "orphaned_after and unclaimed_after are 0 at least");
}

TEST(WorkerServer, IsTheTaskThatTheEnvironmentSays) {
  EXPECT_FALSE(run_worker_server({}, no_environment)) << "a program on its own";
  const launcher::ReservedPort port;
  // Whether that task has served, until it found that nobody came.
  const auto serves = [&](const std::string& chief, const std::string& type, int index) {
    const std::string config =
        str(R"({"cluster": {)", chief, R"("ps": ["127.0.0.1:3"], "worker": ["127.0.0.1:2", ")",
            port.address(), R"("]}, "task": {"type": ")", type, R"(", "index": )", index, "}}");
    return run_worker_server(
        {.unclaimed_after = milliseconds(20), .notice = [](const std::string&) {}},
        [&](const std::string& name) -> std::optional<std::string> {
          if (name == "TF_CONFIG") return config;
          return std::nullopt;
        });
  };
  const std::string chief = R"("chief": ["127.0.0.1:1"], )";
  for (const std::string& beside : {std::string(), chief}) {
    EXPECT_TRUE(serves(beside, "worker", 1));
    EXPECT_FALSE(serves(beside, "ps", 0));
    EXPECT_FALSE(serves(beside, "evaluator", 0));
  }
  EXPECT_FALSE(serves(chief, "chief", 0));
  EXPECT_FALSE(serves("", "worker", 0)) << "the chief of a cluster that has no other";
}

}  // namespace
}  // namespace cohort::testing
