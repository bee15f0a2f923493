// Gradients that wait in sums of workers (accumulation_steps) which are lost: each counts once.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/random.h"
#include "core/distribute/remote_updates.h"
#include "core/optim/optimizers.h"
#include "strategies/parameter_server/lane.h"
#include "strategies/parameter_server/server_variable.h"
#include "tests/strategies/coordinator/fake_worker.h"
#include "tests/strategies/coordinator/job.h"
#include "tests/testing/gate.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

// A weight whose gradient is -x in each call, so that it is moved by the mean of what the calls
// were given; calls return x.
class Summing {
 public:
  Summing(Strategy& strategy, int64_t accumulation_steps)
      : steps_(static_cast<double>(accumulation_steps)),
        weight_(zero()),
        sgd_(optim::SGD(1.0, {.gradients = {.accumulation_steps = accumulation_steps}})),
        step_(strategy.function(
            [this](const BatchValues& batch) {
              const Value x = ops::reduce_sum(batch["value"]);
              sgd_.minimize(0.0 - weight_->read() * x, {weight_});
              return x;
            },
            "summing")) {
    sgd_.build({weight_});
  }

  RemoteValue schedule(ClusterCoordinator& coordinator, float x) {
    return coordinator.schedule(step_, data::Batch({{"value", floats({x})}}));
  }
  RemoteValue schedule(ClusterCoordinator& coordinator, const PerWorkerIterator& batches) {
    return coordinator.schedule(step_, batches);
  }
  double weight() const { return weight_->value().item(); }
  double iterations() const { return sgd_.iterations()->value().item(); }
  // What waits on the workers, by worker.
  std::vector<double> waiting(ClusterCoordinator& coordinator) const {
    std::vector<double> sums;
    for (const auto& variable : sgd_.variables())
      if (variable->name().find("gradient_accumulator") != std::string::npos)
        for (const Tensor& sum : coordinator.fetch_per_worker(variable, kPatience))
          sums.push_back(-sum.item());
    return sums;
  }
  // Of all calls, however their gradients were summed.
  double total(ClusterCoordinator& coordinator) const {
    double total = steps_ * weight();
    for (const double sum : waiting(coordinator)) total += sum;
    return total;
  }

 private:
  const double steps_;
  const std::shared_ptr<Variable> weight_;
  const optim::Optimizer sgd_;
  const StepFunction<Value, const BatchValues&> step_;
};

// Until it is there again, and what it was at is with the others.
void lose(Job& job, ClusterCoordinator& coordinator, size_t worker) {
  coordinator.wait_for_workers();
  const uint64_t failures = coordinator.statistics().worker_failures;
  job.cluster.stop(worker);
  EXPECT_TRUE(eventually([&] { return coordinator.statistics().worker_failures > failures; }));
  job.cluster.start(worker);
  coordinator.wait_for_workers();
}

TEST(LostSums, AreMadeAgainOnAWorkerThatIsStartedAgain) {
  constexpr int kSteps = 3;
  for (const int before : {1, 2}) {
    SCOPED_TRACE(str("lost after ", before, " calls"));
    Job job(1);
    const auto strategy = job.strategy();
    const auto scope = strategy->scope();
    Summing summing(*strategy, kSteps);
    const auto coordinator = job.coordinator(*strategy);
    std::vector<RemoteValue> results;
    const auto run = [&](int first, int last) {
      for (int i = first; i < last; ++i)
        results.push_back(summing.schedule(*coordinator, static_cast<float>(3 << i)));
      coordinator->join(kPatience);
    };
    run(0, before);
    lose(job, *coordinator, 0);
    EXPECT_EQ(coordinator->statistics().retried, static_cast<uint64_t>(before));
    coordinator->join(kPatience);
    EXPECT_EQ(summing.waiting(*coordinator)[0], before == 1 ? 3 : 9);
    EXPECT_EQ(summing.weight(), 0);
    run(before, kSteps);
    EXPECT_NEAR(summing.weight(), 7, 1e-5) << "the mean of 3, 6 and 12";
    EXPECT_EQ(summing.waiting(*coordinator)[0], 0);
    EXPECT_EQ(summing.iterations(), kSteps) << "each call is counted once";
    EXPECT_EQ(coordinator->statistics().executed, static_cast<uint64_t>(kSteps));
    for (int i = 0; i < kSteps; ++i)
      EXPECT_EQ(results[static_cast<size_t>(i)].get().item(), 3 << i);
    lose(job, *coordinator, 0);
    EXPECT_TRUE(coordinator->done());
    EXPECT_EQ(coordinator->statistics().retried, static_cast<uint64_t>(before))
        << "what was sent is not executed again";
  }
}

TEST(LostSums, OfAWorkerAgainAndAgainGoToTheOthers) {
  constexpr int kCalls = 60;
  const auto [seed, rounds] = trials(11, 8);
  RandomStream random(seed);
  Job job(3);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  Summing summing(*strategy, 4);
  const auto coordinator = job.coordinator(*strategy);
  coordinator->wait_for_workers();
  double total = 0;
  uint64_t calls = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t executed = coordinator->statistics().executed;
    for (int i = 0; i < kCalls; ++i) {
      const auto x = static_cast<float>(++calls);
      summing.schedule(*coordinator, x);
      total += x;
    }
    // Those who take over are lost, too.
    for (const uint64_t lost : {random.below(3), random.below(3)}) {
      const uint64_t reached = executed + random.below(kCalls);
      ASSERT_TRUE(eventually([&] { return coordinator->statistics().executed >= reached; }));
      lose(job, *coordinator, lost);
    }
    coordinator->join(kPatience);
    ASSERT_EQ(summing.total(*coordinator), total) << "round " << round;
    ASSERT_EQ(summing.iterations(), static_cast<double>(calls));
    ASSERT_EQ(coordinator->statistics().executed, calls);
  }
}

Options options_of(const std::vector<std::string>& workers, const TestServer (&servers)[2]) {
  Options options;
  options.job_id = "job";
  options.resolver =
      resolver_of({{"chief", {"127.0.0.1:1"}},
                   {"worker", workers},
                   {"ps", {servers[0].address().text(), servers[1].address().text()}}});
  return options;
}

// The number of the count that a worker is to create; 0: another command.
uint64_t count_of(const coordinator::Command& command) {
  const auto* create = std::get_if<coordinator::Create>(&command);
  if (create == nullptr) return 0;
  const auto* own = std::get_if<coordinator::CreateVariable>(&create->what);
  return own != nullptr && own->kept == KeptApart::kCount ? create->resource : 0;
}

TEST(LostSums, ThatAFailedCallMayNotHaveSentAreSpokenOf) {
  TestServer servers[2];
  uint64_t count = 0;
  int runs = 0;
  const FakeWorker fake(
      [&](const coordinator::ToWorker& message) -> std::optional<coordinator::FromWorker> {
        coordinator::FromWorker answer;
        for (const coordinator::Command& command : message.commands) {
          if (const uint64_t created = count_of(command)) count = created;
          const auto* run = std::get_if<coordinator::Run>(&command);
          if (run == nullptr) continue;
          coordinator::Result& result = answer.results.emplace_back();
          result.id = run->id;
          result.values = {Tensor::scalar(0.0f)};
          result.counts = {{count, ++runs < 3}};
          if (runs == 3) result.error = Error(Code::kUnavailable, "no server");
        }
        return answer;
      });
  ParameterServerStrategy strategy(options_of({fake.address()}, servers));
  const auto scope = strategy.scope();
  Summing summing(strategy, 3);
  Lines lines;
  ClusterCoordinator coordinator(strategy, {.notice = lines.writer()}, no_environment);
  for (const float x : {3.0f, 6.0f}) summing.schedule(coordinator, x);
  coordinator.join(kPatience);
  summing.schedule(coordinator, 12.0f);
  EXPECT_ERROR(coordinator.join(kPatience), Code::kUnavailable, "no server");
  EXPECT_TRUE(eventually(
      [&] { return lines.has("gradients of 2 executed calls may not have been sent"); }));
}

// It has sent the sum that a call has completed, and is lost before it says so.
TEST(LostSums, ThatWereSentStandForTheSameCallsElsewhere) {
  TestServer servers[2];
  TestCluster cluster(1, {servers[0].address().text(), servers[1].address().text()});
  cluster.stop(0);
  std::atomic<bool> has_sent = false;
  uint64_t incarnation = 0, count = 0;
  std::vector<std::string> variables;
  int runs = 0;
  const auto send = [&](const coordinator::Run& run) {
    const auto session =
        std::make_shared<ServerSession>(std::vector{servers[0].address(), servers[1].address()},
                                        ParameterClientOptions{.task = "worker:1", .job_id = "job"},
                                        ConsistencyOptions{}, no_environment);
    session->mark_pushes(ParameterClient::Source{parameter_server::lane_name(run.lane), incarnation,
                                                 run.lane_sequence});
    for (const std::string& packed : variables) {
      const auto info = ServerVariableInfo::unpack(packed, 2);
      if (info.name != "w") continue;
      ServerVariable weight(info, session, 1);
      ServerVariable::Calls calls(2);
      weight.add_push(calls, Tensor::scalar(-7.0f), {}, {.learning_rate = 1, .step = 1});
      session->update(calls);
      has_sent = true;
    }
  };
  // Two calls are summed, and the third one completes the sum.
  std::optional<FakeWorker> fake(
      std::in_place,
      [&](const coordinator::ToWorker& message) -> std::optional<coordinator::FromWorker> {
        if (message.attach) incarnation = message.attach->incarnation;
        coordinator::FromWorker answer;
        for (const coordinator::Command& command : message.commands) {
          if (const auto* define = std::get_if<coordinator::Define>(&command))
            variables = define->server_variables;
          if (const uint64_t created = count_of(command)) count = created;
          const auto* run = std::get_if<coordinator::Run>(&command);
          if (run == nullptr) continue;
          if (++runs == 3)
            send(*run);
          else
            answer.results.push_back({.id = run->id,
                                      .error = {},
                                      .values = {Tensor::scalar(0.0f)},
                                      .returned = false,
                                      .counts = {{count, true}}});
        }
        if (answer.results.empty()) return std::nullopt;
        return answer;
      });
  ParameterServerStrategy strategy(
      options_of({cluster.address(0).text(), fake->address()}, servers));
  const auto scope = strategy.scope();
  Summing summing(strategy, 3);
  ClusterCoordinator coordinator(strategy, {.notice = cluster.lines.writer()}, no_environment);
  std::vector<RemoteValue> results;
  for (const float x : {3.0f, 6.0f, 12.0f}) results.push_back(summing.schedule(coordinator, x));
  ASSERT_TRUE(eventually([&] { return has_sent.load(); }));
  ASSERT_TRUE(eventually([&] { return coordinator.statistics().executed == 2; }));
  EXPECT_EQ(summing.weight(), 7);
  fake.reset();
  cluster.start(0);
  coordinator.join(kPatience);
  EXPECT_EQ(summing.weight(), 7) << "it has not been moved twice";
  EXPECT_EQ(summing.iterations(), 3);
  EXPECT_EQ(coordinator.statistics().executed, 3u);
  EXPECT_EQ(results[0].get().item(), 0) << "the result that is known stays";
  EXPECT_EQ(results[2].get().item(), 12);
  for (const float x : {3.0f, 6.0f, 12.0f}) summing.schedule(coordinator, x);
  coordinator.join(kPatience);
  EXPECT_NEAR(summing.weight(), 14, 1e-5);
}

TEST(LostSums, AreMadeAgainWhereEveryOtherWorkerIsInTheMiddleOfOne) {
  constexpr int64_t kMany = 1 << 20;
  static Gate gate;
  register_behind(gate, "gated", 1000);
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  Summing summing(*strategy, kMany);
  const auto coordinator = job.coordinator(*strategy);
  coordinator->wait_for_workers();
  double total = 0;
  ASSERT_TRUE(eventually([&] {
    total += summing.schedule(*coordinator, 1.0f).get(kPatience).item();
    coordinator->join(kPatience);
    const std::vector<double> sums = summing.waiting(*coordinator);
    return sums[0] > 0 && sums[1] > 0;
  }));
  const OpenInTheEnd guard(gate);
  const auto batches = coordinator->create_per_worker_dataset("gated").iterate();
  const RemoteValue gated = summing.schedule(*coordinator, batches);
  ASSERT_TRUE(eventually([&] { return coordinator->statistics().in_flight == 1; }));
  size_t lost = 0;
  try {
    coordinator->join(milliseconds(1));
    FAIL() << "it waits";
  } catch (const Error& error) {
    const std::string idle = str("worker:0 (", job.cluster.address(0).text(), "): idle");
    if (std::string(error.message()).find(idle) != std::string::npos) lost = 1;
  }
  std::thread stopping([&] { job.cluster.stop(lost); });
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().worker_failures == 1; }));
  gate.open();
  stopping.join();
  coordinator->join(kPatience);
  EXPECT_EQ(gated.get().item(), 1000);
  job.cluster.start(lost);
  coordinator->wait_for_workers();
  const std::vector<double> sums = summing.waiting(*coordinator);
  EXPECT_EQ(sums[lost], 0);
  EXPECT_EQ(sums[1 - lost], total + 1000);
  EXPECT_EQ(summing.weight(), 0);
}

}  // namespace
}  // namespace cohort::testing
