#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/random.h"
#include "core/data/dataset.h"
#include "core/nn/layers.h"
#include "core/train/model.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/parameter_server_strategy.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {

using Options = ParameterServerStrategy::Options;
using VariablePtr = std::shared_ptr<Variable>;

// Servers, and the workers that a test makes; `others` are tasks that the cluster lists besides.
class Job {
 public:
  explicit Job(int servers, int workers, Options options = {}, ClusterSpec::Jobs others = {})
      : options_(std::move(options)), workers_(workers), others_(std::move(others)) {
    options_.job_id = "job";
    options_.timeout = std::chrono::seconds(20);
    for (int s = 0; s < servers; ++s)
      servers_.push_back(std::make_unique<TestServer>(ParameterServerOptions{
          .consistency = {.max_staleness = options_.max_staleness,
                          .num_workers = workers,
                          .backup_workers = options_.backup_workers,
                          .scale_learning_rate = options_.scale_learning_rate,
                          .delay_compensation = options_.delay_compensation}}));
  }

  std::unique_ptr<ParameterServerStrategy> worker(int index, const Options* other = nullptr) const {
    ClusterSpec::Jobs jobs = others_;
    for (const auto& server : servers_) jobs["ps"].push_back(server->address().text());
    for (int w = 0; w < workers_; ++w) jobs["worker"].push_back(str("127.0.0.1:", 1 + w));
    Options options = other != nullptr ? *other : options_;
    options.job_id = "job";
    options.resolver = std::make_shared<LiteralResolver>(
        ClusterSpec(jobs), LiteralResolverOptions{.task_type = "worker", .task_id = index});
    return std::make_unique<ParameterServerStrategy>(options);
  }
  // Runs `body` as each worker, on a thread of its own.
  void on_workers(const std::function<void(ParameterServerStrategy&)>& body) const {
    std::vector<std::thread> threads;
    for (int w = 0; w < workers_; ++w)
      threads.emplace_back([&, w] {
        try {
          const auto strategy = worker(w);
          const auto scope = strategy->scope();
          body(*strategy);
        } catch (const Error& error) {
          ADD_FAILURE() << "worker:" << w << ": " << error.what();
        }
      });
    for (auto& thread : threads) thread.join();
  }

  TestServer& server(int index) const { return *servers_[static_cast<size_t>(index)]; }
  uint64_t sum(uint64_t ServerStatistics::*member) const {
    uint64_t total = 0;
    for (const auto& server : servers_) total += (**server).statistics().*member;
    return total;
  }

 private:
  Options options_;
  const int workers_;
  const ClusterSpec::Jobs others_;
  std::vector<std::unique_ptr<TestServer>> servers_;
};

inline VariablePtr counting(const std::string& name, const Shape& shape) {
  return create_variable({.name = name, .spec = {DType::kFloat32, shape}, .initial_value = [=] {
                            Tensor t(DType::kFloat32, shape);
                            for (int64_t i = 0; i < t.num_elements(); ++i)
                              t.data<float>()[i] = static_cast<float>(i);
                            return t;
                          }});
}

inline ServerVariable& on_servers(const VariablePtr& variable) {
  return dynamic_cast<ServerVariable&>(*variable);
}

inline constexpr int64_t kRows = 48;

inline data::Dataset line(int64_t batch, int64_t rows = kRows) {
  Tensor x(DType::kFloat32, {rows, 3}), y(DType::kFloat32, {rows, 1});
  RandomStream random(5);
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0;
    for (int64_t c = 0; c < 3; ++c) {
      const auto value = static_cast<float>(random.uniform() - 0.5);
      x.data<float>()[3 * i + c] = value;
      sum += value * static_cast<float>(c + 1);
    }
    y.data<float>()[i] = sum;
  }
  return data::from_tensor_slices({{"x", x}, {"label", y}}).batch(batch);
}

inline Model line_model(const optim::Optimizer& optimizer) {
  set_global_seed(11);
  auto model = nn::Sequential({nn::Dense(4, {.activation = nn::tanh}), nn::Dense(1)});
  model.build({{DType::kFloat32, {1, 3}}});
  model.compile({.optimizer = optimizer, .loss = losses::MeanSquaredError()});
  return model;
}

inline void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.spec(), expected.spec());
  const Tensor a = found.cast(DType::kFloat64), b = expected.cast(DType::kFloat64);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    ASSERT_NEAR(a.data<double>()[i], b.data<double>()[i], tolerance) << "element " << i;
}

// Expects the workers, of which each trains a model by `train`, to give it the weights of `alone`.
inline void expect_trained_as(const Model& alone, const Job& job,
                              const std::function<Model(ParameterServerStrategy&)>& train) {
  std::vector<Tensor> weights;
  job.on_workers([&](ParameterServerStrategy& strategy) {
    const Model model = train(strategy);
    if (!strategy.is_chief()) return;
    for (const VariablePtr& variable : model.variables()) weights.push_back(variable->value());
  });
  ASSERT_EQ(weights.size(), alone.variables().size());
  for (size_t i = 0; i < weights.size(); ++i)
    expect_near(weights[i], alone.variables()[i]->value(), 1e-5);
}

}  // namespace cohort::testing
