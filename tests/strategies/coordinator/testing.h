#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/distribute/strategy.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/coordinator/cluster_coordinator.h"
#include "strategies/coordinator/dataset_registry.h"
#include "strategies/coordinator/worker_server.h"
#include "strategies/parameter_server/server_variable.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"
#include "tests/testing/gate.h"
#include "tests/testing/lines.h"

namespace cohort::testing {

// The workers of a job on ports of this host, and in this process where they are started.
class TestCluster {
 public:
  // `devices` are those of each worker.
  explicit TestCluster(int workers, std::vector<std::string> parameter_servers = {},
                       std::vector<std::string> devices = {})
      : ports_(static_cast<size_t>(workers)),
        parameter_servers_(std::move(parameter_servers)),
        devices_(std::move(devices)) {
    servers_.resize(ports_.size());
    for (size_t i = 0; i < ports_.size(); ++i) start(i);
  }

  void start(size_t i) {
    servers_[i] = std::make_unique<WorkerServer>(
        Address::parse(ports_[i].address()),
        WorkerServerOptions{.job_id = "job",
                            .devices = devices_,
                            .task = str("worker:", i),
                            .server_timeout = std::chrono::seconds(3),
                            .notice = lines.writer()},
        no_environment);
  }
  void stop(size_t i) { servers_[i].reset(); }
  WorkerServer& worker(size_t i) { return *servers_[i]; }
  Address address(size_t i) const { return Address::parse(ports_[i].address()); }

  ClusterSpec spec() const {
    std::vector<std::string> addresses;
    for (const launcher::ReservedPort& port : ports_) addresses.push_back(port.address());
    ClusterSpec::Jobs jobs{{"worker", addresses}};
    if (!parameter_servers_.empty()) jobs["ps"] = parameter_servers_;
    return ClusterSpec(jobs);
  }
  std::unique_ptr<ClusterCoordinator> coordinator(CoordinatorOptions options = {}) {
    options.job_id = "job";
    options.notice = lines.writer();
    return std::make_unique<ClusterCoordinator>(spec(), options, no_environment);
  }

  Lines lines;

 private:
  std::vector<launcher::ReservedPort> ports_;
  const std::vector<std::string> parameter_servers_, devices_;
  std::vector<std::unique_ptr<WorkerServer>> servers_;
};

inline Function doubled() {
  return function([](Value x) { return x + x; }, "doubled");
}

// Adds up a batch's "value".
inline auto summing(const std::string& name = "sum") {
  return default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, name);
}

// A dataset without end of batches of one row with `value` as its "value", of which none comes
// before `gate` is open. It is registered for good, and the gate is to stay as long.
inline void register_behind(Gate& gate, const std::string& name, float value = 1) {
  gate.close();
  register_dataset(name, [&gate, value](const InputContext&) {
    return data::generator([&gate, value]() -> data::NextFunction {
             return [&gate, value]() -> std::optional<data::Element> {
               gate.pass();
               return data::Element{{"value", Tensor::scalar(value)}};
             };
           })
        .batch(1);
  });
}

// A number on each worker, 0 at first.
inline std::shared_ptr<Variable> counter(ClusterCoordinator& coordinator) {
  return coordinator.create_per_worker_variable(
      {.name = "counter", .spec = {DType::kFloat32, {}}, .initial_value = [] {
         return Tensor::scalar(0.0f);
       }});
}

// A variable of five rows on two parameter servers, which starts at 0.
class Counted {
 public:
  explicit Counted(const std::vector<Address>& servers)
      : variable_(std::make_shared<ServerVariable>(
            ServerVariable::Options{
                .variable = {.name = "counted",
                             .spec = {DType::kFloat32, {5, 2}},
                             .initial_value =
                                 [] {
                                   return Tensor::zeros(DType::kFloat32, {5, 2});
                                 }},
                .servers = {0, 1}},
            std::make_shared<ServerSession>(
                servers, ParameterClientOptions{.task = "chief:0", .job_id = "job"},
                ConsistencyOptions{}, no_environment))) {}

  const std::shared_ptr<ServerVariable>& variable() const { return variable_; }
  // Adds to every element.
  Function adding() const {
    return function(
        [variable = variable_](Value x) {
          variable->assign_add(ops::broadcast_to(x, variable->spec().shape));
          return x + x;
        },
        "adding");
  }
  // What all elements of a shard are; -1 where they differ.
  double value(size_t shard) const {
    const Tensor part = variable_->shards()[shard].value;
    const std::vector<float> all = values_of(part);
    for (const float one : all)
      if (one != all[0]) return -1;
    return all[0];
  }
  // What those of both are; -1 where they differ.
  double value() const { return value(0) == value(1) ? value(0) : -1; }

 private:
  const std::shared_ptr<ServerVariable> variable_;
};

// The same, with the servers in this process.
struct TwoServers {
  TestServer servers[2];
};
class CountedOnServers : private TwoServers, public Counted {
 public:
  CountedOnServers() : Counted({servers[0].address(), servers[1].address()}) {}
  std::vector<std::string> addresses() const {
    return {servers[0].address().text(), servers[1].address().text()};
  }
};

// A function that fails when it is executed: it looks up a row that is not there.
inline Function failing() {
  return function(
      [](Value x) {
        return ops::gather(ops::constant(floats({1, 2})), ops::cast(x, DType::kInt64) + 100);
      },
      "failing");
}

// How many functions the workers have been given.
inline uint64_t functions_known(ClusterCoordinator& coordinator) {
  uint64_t known = 0;
  for (const WorkerStatus& status : coordinator.worker_statuses()) known += status.functions;
  return known;
}

// When something has begun that does not end soon, has something else fail, which is to end all.
inline void fail_beside(ClusterCoordinator& coordinator, const std::function<bool()>& begun) {
  EXPECT_TRUE(eventually(begun));
  coordinator.schedule(failing(), 0.0f);
  EXPECT_ERROR(coordinator.join(kPatience), Code::kOutOfRange, "\"failing\"");
  EXPECT_EQ(coordinator.statistics().in_flight, 0u);
  EXPECT_EQ(coordinator.schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  coordinator.join(kPatience);
}

}  // namespace cohort::testing
