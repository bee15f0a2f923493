// What the options of ParameterServerStrategy make of the servers that a task ps:0 starts.
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "strategies/cluster/literal_resolver.h"
#include "strategies/parameter_server_strategy.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using Options = ParameterServerStrategy::Options;

// The task ps:0 of a cluster, on a thread of its own until this object ends.
class ServerTask {
 public:
  ServerTask(int workers, Options options) {
    for (int w = 0; w < workers; ++w) jobs_["worker"].push_back(str("127.0.0.1:", 1 + w));
    options.job_id = "job";
    options.orphaned_after = std::chrono::seconds(20);
    options.resolver = resolver("ps");
    served_ = std::async(std::launch::async,
                         [options = std::move(options)] { return run_parameter_server(options); });
  }
  ~ServerTask() {
    const Error error = error_of([this] {
      client(0)->shut_down();
      EXPECT_TRUE(served_.get());
    });
    EXPECT_EQ(error.message(), "no error");
  }

  std::unique_ptr<ParameterClient> client(int worker) const {
    return std::make_unique<ParameterClient>(
        Address::parse(port_.address()),
        ParameterClientOptions{.task = str("worker:", worker),
                               .job_id = "job",
                               .timeout = std::chrono::seconds(20),
                               .transport = transport()},
        no_environment);
  }

  std::unique_ptr<ParameterServerStrategy> worker(Options options) const {
    options.job_id = "job";
    options.timeout = std::chrono::seconds(20);
    options.resolver = resolver("worker");
    return std::make_unique<ParameterServerStrategy>(options);
  }

 private:
  std::shared_ptr<const ClusterResolver> resolver(const std::string& job) const {
    return std::make_shared<LiteralResolver>(
        ClusterSpec(jobs_), LiteralResolverOptions{.task_type = job, .task_id = 0});
  }

  launcher::ReservedPort port_;
  ClusterSpec::Jobs jobs_ = {{"ps", {port_.address()}}};
  std::future<bool> served_;
};

// Makes "w", one number, in all `clients`, which have its value then.
ShardSpec number(std::initializer_list<ParameterClient*> clients, float value) {
  ShardSpec spec = whole_shard("w", kOne);
  for (ParameterClient* client : clients) {
    client->create(spec, [=] { return floats({value}); });
    fetch(*client, spec);
  }
  return spec;
}

PushOutcome push(ParameterClient& client, float gradient, double learning_rate = 1) {
  return client.push({.shard = "w", .gradient = floats({gradient}), .learning_rate = learning_rate})
      .outcome;
}

TEST(ServersOfAStrategy, ScaleTheLearningRateOfStaleGradients) {
  constexpr int kStaleness = 5;
  for (const bool scale : {false, true}) {
    const ServerTask task(2, {.scale_learning_rate = scale});
    const auto fast = task.client(0), slow = task.client(1);
    const ShardSpec spec = number({fast.get(), slow.get()}, 0);
    for (int i = 0; i < kStaleness; ++i) push(*fast, 0);
    push(*slow, -1, 0.5);
    EXPECT_NEAR(values_of(fetch(*slow, spec))[0], scale ? 0.5 / kStaleness : 0.5, 1e-6);
  }
}

TEST(ServersOfAStrategy, CompensateDelays) {
  constexpr double kBefore = 1, kMove = 0.25, kGradient = 0.5, kRate = 0.1;
  for (const double lambda : {0.0, 3.0}) {
    const ServerTask task(2, {.delay_compensation = lambda});
    const auto fast = task.client(0), slow = task.client(1);
    const ShardSpec spec = number({fast.get(), slow.get()}, kBefore);
    push(*fast, kMove);
    push(*slow, kGradient, kRate);
    const double compensated = kGradient - lambda * kGradient * kGradient * kMove;
    EXPECT_NEAR(values_of(fetch(*slow, spec))[0], kBefore - kMove - kRate * compensated, 1e-6);
  }
}

TEST(ServersOfAStrategy, WaitForAllWorkersButTheBackups) {
  const ServerTask task(3, {.max_staleness = 0, .backup_workers = 1});
  const auto first = task.client(0), second = task.client(1), third = task.client(2);
  const ShardSpec spec = number({first.get(), second.get(), third.get()}, 0);
  EXPECT_EQ(push(*third, -1), PushOutcome::kCounted);
  EXPECT_EQ(push(*first, -10), PushOutcome::kApplied);
  EXPECT_EQ(push(*second, -100), PushOutcome::kLate);
  EXPECT_EQ(values_of(fetch(*second, spec))[0], 11);
}

TEST(ServersOfAStrategy, HaveTheOptionsOfTheWorkers) {
  const Options synchronous{.max_staleness = 0};
  const auto variable_of = [](const ServerTask& task, const Options& options) {
    const auto strategy = task.worker(options);
    const auto scope = strategy->scope();
    create_variable({.name = "v",
                     .spec = {DType::kFloat32, {}},
                     .initial_value = [] { return Tensor::scalar(0.0f); }})
        ->value();
  };
  for (const bool is_synchronous : {false, true}) {
    const ServerTask task(2, is_synchronous ? synchronous : Options{});
    EXPECT_ERROR(variable_of(task, is_synchronous ? Options{} : synchronous),
                 Code::kFailedPrecondition, "run_parameter_server(options)");
    EXPECT_NO_THROW(variable_of(task, is_synchronous ? synchronous : Options{}));
  }
}

TEST(ServersOfAStrategy, AreRefusedWhatDoesNotGoTogether) {
  const auto run = [](Options options) {
    options.resolver = std::make_shared<LiteralResolver>(
        ClusterSpec(ClusterSpec::Jobs{{"ps", {"127.0.0.1:1"}}, {"worker", {"127.0.0.1:2"}}}),
        LiteralResolverOptions{.task_type = "ps", .task_id = 0});
    run_parameter_server(options);
  };
  EXPECT_ERROR(run({.max_staleness = 0, .backup_workers = 1}), Code::kInvalidArgument, "backup");
  EXPECT_ERROR(run({.max_staleness = 0, .scale_learning_rate = true}), Code::kInvalidArgument,
               "never stale");
  EXPECT_ERROR(run({.delay_compensation = -1}), Code::kInvalidArgument, "delay_compensation");
}

}  // namespace
}  // namespace cohort::testing
