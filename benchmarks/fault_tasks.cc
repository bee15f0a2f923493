#include "benchmarks/fault_tasks.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/task_process.h"
#include "cohort.h"
#include "strategies/parameter_server/client.h"

namespace cohort::benchmarks {
namespace {

using std::chrono::milliseconds;

constexpr char kJobId[] = "faults";
constexpr int64_t kElements = 1024;
// The observer looks so often, and gives a server so much time to answer.
constexpr milliseconds kLookInterval(5), kAnswerTime(50);

ParameterServerStrategy::Options strategy_options(const FaultJobOptions& o,
                                                  const ClusterSpec& cluster,
                                                  const std::string& job, int task) {
  return {.resolver = std::make_shared<LiteralResolver>(
              cluster, LiteralResolverOptions{.task_type = job, .task_id = task}),
          .devices = {"cpu:0"},
          .max_staleness = o.max_staleness,
          .partitioner = FixedShardsPartitioner(o.servers),
          .snapshot_folder = o.snapshot_folder,
          .snapshot_interval = o.snapshot_interval,
          .server_log = o.log,
          .job_id = kJobId};
}

// To be made in the scope of the strategy.
struct Counter {
  const std::shared_ptr<Variable> variable = create_variable(
      {.name = "counter", .spec = {DType::kFloat32, {kElements}}, .initial_value = [] {
         return Tensor::zeros(DType::kFloat32, {kElements});
       }});
  const optim::Optimizer optimizer = optim::SGD(1.0);

  Counter() { optimizer.build({variable}); }
  // While tracing: the loss falls by 1 for each element that grows by 1.
  Value add_one() const {
    const Value loss = -ops::reduce_sum(variable->read());
    optimizer.minimize(loss, {variable});
    return loss;
  }
};

Sight look_at(ParameterClient& client, int server) {
  try {
    const ServerStatistics statistics = client.statistics();
    return {.server = server, .epoch = statistics.epoch, .sessions = statistics.sessions};
  } catch (const Error&) {
    return {.server = server};
  }
}

}  // namespace

void serve(const FaultJobOptions& options, const ClusterSpec& cluster, int server) {
  run_parameter_server(strategy_options(options, cluster, "ps", server));
}

void work(const FaultJobOptions& options, const ClusterSpec& cluster, int worker) {
  const auto pace = options.pace * (options.slow_worker == worker ? kSlowFactor : 1);
  set_logical_cpus(1, 1);
  ParameterServerStrategy strategy(strategy_options(options, cluster, "worker", worker));
  const auto scope = strategy.scope();
  const Counter counter;
  const auto step = strategy.function([&] { return counter.add_one(); });
  const CatchTermination catching;
  while (!interrupted()) {
    std::this_thread::sleep_for(pace);
    strategy.run(step);
    say("step");
  }
}

void observe(const ClusterSpec& cluster) {
  std::vector<std::unique_ptr<ParameterClient>> clients;
  for (const int server : cluster.task_ids("ps"))
    clients.push_back(std::make_unique<ParameterClient>(
        cluster.address("ps", server),
        ParameterClientOptions{.task = "observer:0", .job_id = kJobId, .timeout = kAnswerTime}));
  std::vector<Sight> known(clients.size());
  const CatchTermination catching;
  while (!interrupted()) {
    for (size_t s = 0; s < clients.size(); ++s) {
      const Sight sight = look_at(*clients[s], static_cast<int>(s));
      if (sight != std::exchange(known[s], sight))
        say(str("server ", sight.server, ' ', sight.epoch, ' ', sight.sessions));
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

Sight sight_in(const std::string& said) {
  std::istringstream in(said);
  std::string word;
  Sight sight;
  in >> word >> sight.server >> sight.epoch >> sight.sessions;
  return sight;
}

void say_values(const FaultJobOptions& options, const ClusterSpec& cluster) {
  ParameterServerStrategy strategy(strategy_options(options, cluster, "worker", 0));
  const auto scope = strategy.scope();
  const Counter counter;
  for (const auto& shard : dynamic_cast<ServerVariable&>(*counter.variable).shards()) {
    const auto values = shard.value.values<float>();
    const auto [least, most] = std::ranges::minmax(values);
    if (least != most)
      fail(Code::kDataLoss, "shard ", shard.name, " of ps:", shard.server, " counts ", least,
           " pushes in one element and ", most, " in another");
    say(str("value ", shard.server, ' ', least));
  }
}

}  // namespace cohort::benchmarks
