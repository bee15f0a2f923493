#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/distribute/strategy.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/parameter_server_strategy.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {

using Options = ParameterServerStrategy::Options;

// That a task of a cluster has been told of it.
inline std::shared_ptr<const ClusterResolver> resolver_of(const ClusterSpec::Jobs& jobs,
                                                          const std::string& type = "chief",
                                                          int index = 0) {
  return std::make_shared<LiteralResolver>(
      ClusterSpec(jobs), LiteralResolverOptions{.task_type = type, .task_id = index});
}

// A number, 0 at first, of the strategy whose scope this is in.
inline std::shared_ptr<Variable> zero(const std::string& name = "w") {
  return create_variable({.name = name, .spec = {DType::kFloat32, {}}, .initial_value = [] {
                            return Tensor::scalar(0.0f);
                          }});
}

// A chief, two parameter servers and workers, all in this process.
class Job {
 public:
  // `devices` are those of each worker.
  explicit Job(int workers, std::vector<std::string> devices = {})
      : cluster(workers, {servers_[0].address().text(), servers_[1].address().text()},
                std::move(devices)) {}

  std::unique_ptr<ParameterServerStrategy> strategy(Options options = {},
                                                    const std::string& task = "chief") const {
    ClusterSpec::Jobs jobs{{"chief", {"127.0.0.1:1"}}};
    for (const std::string job : {"worker", "ps"})
      for (const int id : cluster.spec().task_ids(job))
        jobs[job].push_back(cluster.spec().address(job, id).text());
    options.job_id = "job";
    options.resolver = resolver_of(jobs, task);
    return std::make_unique<ParameterServerStrategy>(options);
  }
  std::unique_ptr<ClusterCoordinator> coordinator(Strategy& strategy,
                                                  CoordinatorOptions options = {}) {
    options.notice = cluster.lines.writer();
    return std::make_unique<ClusterCoordinator>(strategy, options, no_environment);
  }

  void stop_servers() {
    for (TestServer& server : servers_) server.stop();
  }

 private:
  TestServer servers_[2];

 public:
  TestCluster cluster;
};

}  // namespace cohort::testing
