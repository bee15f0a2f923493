// Variables that are synchronised on read, in functions that are scheduled: one copy on the
// servers, but for what optimizers keep before they send gradients, of which each worker has one.
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/random.h"
#include "core/nn/layers.h"
#include "core/nn/losses.h"
#include "core/nn/metrics.h"
#include "core/optim/optimizers.h"
#include "core/train/checkpoint.h"
#include "core/train/model.h"
#include "tests/strategies/coordinator/job.h"

namespace cohort::testing {
namespace {

std::shared_ptr<Variable> on_read(const std::string& name, Aggregation aggregation) {
  return create_variable({.name = name,
                          .spec = {DType::kFloat32, {2}},
                          .initial_value =
                              [] {
                                return floats({1, 2});
                              },
                          .trainable = false,
                          .synchronization = Synchronization::kOnRead,
                          .aggregation = aggregation});
}

// What an optimizer keeps under a name.
std::shared_ptr<Variable> variable_of(const optim::Optimizer& optimizer, const std::string& name) {
  for (const auto& variable : optimizer.variables())
    if (variable->name().find(name) != std::string::npos) return variable;
  return nullptr;
}

// The same where each worker has its own.
std::vector<Tensor> on_workers(ClusterCoordinator& coordinator, const optim::Optimizer& optimizer,
                               const std::string& name) {
  return coordinator.fetch_per_worker(variable_of(optimizer, name));
}

Model normalised() {
  Model model = nn::Sequential({nn::Dense(4), nn::BatchNormalization(), nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.05), .loss = losses::MeanSquaredError()});
  model.build({{DType::kFloat32, {8, 3}}});
  return model;
}

auto training_step(Strategy& strategy, const Model& model) {
  return strategy.function([&model](const BatchValues& batch) {
    const Value y = model(batch["x"], {.training = true});
    Value loss = ops::reduce_mean(ops::square(y - batch["y"]));
    model.optimizer().minimize(loss, model.trainable_variables());
    return loss;
  });
}

data::Batch batch(int number) {
  RandomStream random(static_cast<uint64_t>(number));
  Tensor x(DType::kFloat32, {8, 3}), y(DType::kFloat32, {8, 1});
  for (int64_t row = 0; row < 8; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const double value = 3 + 2 * random.uniform();
      x.data<float>()[3 * row + i] = static_cast<float>(value);
      sum += value;
    }
    y.data<float>()[row] = static_cast<float>(sum);
  }
  return data::Batch({{"x", x}, {"y", y}});
}

void expect_same(const Model& a, const Model& b) {
  const Variables of_a = a.variables(), of_b = b.variables();
  ASSERT_EQ(of_a.size(), of_b.size());
  for (size_t i = 0; i < of_a.size(); ++i) {
    const std::vector<float> x = values_of(of_a[i]->value()), y = values_of(of_b[i]->value());
    for (size_t j = 0; j < x.size(); ++j)
      EXPECT_NEAR(x[j], y[j], 1e-4 * (1 + std::abs(y[j]))) << of_a[i]->name();
  }
}

TEST(OwnVariables, AModelWithBatchNormalizationTrainsAsOnOneDevice) {
  constexpr int kSteps = 30;
  Model alone = normalised();
  Job job(1);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  Model model = normalised();
  for (size_t i = 0; i < model.variables().size(); ++i)
    alone.variables()[i]->assign(model.variables()[i]->value());
  const auto step = training_step(*strategy, model);
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < kSteps; ++i) coordinator->schedule(step, batch(i));
  coordinator->join(kPatience);
  {
    Strategy& here = alone.strategy();
    const auto step_here = training_step(here, alone);
    std::thread([&] {
      for (int i = 0; i < kSteps; ++i) here.run(step_here, batch(i));
    }).join();
  }
  expect_same(model, alone);
  // What the chief computes by itself uses the statistics that the workers have moved.
  const Tensor x = batch(99)["x"];
  std::vector<float> theirs = values_of(model.predict(x)), ours;
  const Function apply = function([&](Value v) { return model(v); });
  const std::vector<float> applied = values_of(apply({x})[0]);
  std::thread([&] { ours = values_of(alone.predict(x)); }).join();
  for (size_t i = 0; i < theirs.size(); ++i) {
    EXPECT_NEAR(theirs[i], ours[i], 1e-2);
    EXPECT_NEAR(theirs[i], applied[i], 1e-5);
  }
}

TEST(OwnVariables, StatisticsOfSeveralWorkersAreThoseOfTheData) {
  Job job(3);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  Model model = nn::Sequential({nn::BatchNormalization({.momentum = 0.9})});
  model.build({{DType::kFloat32, {8, 3}}});
  const auto step = strategy->function([&](const BatchValues& batch) {
    return ops::reduce_sum(model(batch["x"], {.training = true}));
  });
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < 300; ++i) coordinator->schedule(step, batch(i));
  coordinator->join(kPatience);
  for (const auto& variable : model.variables()) {
    if (variable->trainable()) continue;
    const bool is_mean = variable->name().find("mean") != std::string::npos;
    for (const float value : values_of(variable->value()))
      EXPECT_NEAR(value, is_mean ? 4 : 1.0 / 3, is_mean ? 0.3 : 0.12) << variable->name();
  }
}

TEST(OwnVariables, AMetricIsAccumulatedOverAllWorkersOnce) {
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto metric = metrics::MeanSquaredError();
  const auto state = on_read("state", Aggregation::kSum);
  state->assign(floats({0, 0}));
  const auto step = strategy->function([&](const Value& x) {
    const Value predicted = ops::broadcast_to(x, Shape{4, 1});
    const auto sums =
        metric.increments(ops::constant(Tensor::zeros(DType::kFloat32, {4, 1})), predicted);
    state->assign_add(ops::concat({ops::reshape(sums[0], {1}), ops::reshape(sums[1], {1})}, 0));
    return x;
  });
  const auto coordinator = job.coordinator(*strategy);
  for (int round = 0; round < 2; ++round) {
    double squares = 0;
    for (int i = 1; i <= 50; ++i) {
      coordinator->schedule(step, static_cast<float>(i));
      squares += i * i;
    }
    coordinator->join(kPatience);
    const std::vector<float> sums = values_of(state->value());
    EXPECT_NEAR(metric.result({sums[0], sums[1]}), squares / 50, 1e-3);
    EXPECT_EQ(sums[1], 200);
    state->assign(floats({0, 0}));  // the next epoch
  }
}

TEST(OwnVariables, WhatFunctionsMakeOfTheirValueAddsUp) {
  Job job(3);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto sum = on_read("sum", Aggregation::kSum), mean = on_read("mean", Aggregation::kMean);
  // No assign_add, and yet nothing that another worker does in between is lost.
  const auto step = strategy->function([&](const Value& x) {
    for (const auto& variable : {sum, mean})
      variable->assign(ops::where(
          ops::broadcast_to(ops::greater(x, ops::constant(0, DType::kFloat32)), Shape{2}),
          variable->read() + x, variable->read()));
    return x;
  });
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < 120; ++i) coordinator->schedule(step, i % 2 == 0 ? 1.0f : -1.0f);
  coordinator->join(kPatience);
  for (const auto& variable : {sum, mean})
    EXPECT_EQ(values_of(variable->value()), (std::vector<float>{61, 62})) << variable->name();
}

// As of batch normalisation that a network calls for each of its inputs.
TEST(OwnVariables, WhatFunctionsMakeOfTheirValueInSeveralWritesAddsUp) {
  Job job(3);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto sum = on_read("sum", Aggregation::kSum), mean = on_read("mean", Aggregation::kMean);
  const auto step = strategy->function([&](const Value& x) {
    for (const auto& variable : {sum, mean})
      for (int write = 0; write < 2; ++write) variable->assign((variable->read() * 2.0 + x) * 0.5);
    return x;
  });
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < 120; ++i) coordinator->schedule(step, 1.0f);
  coordinator->join(kPatience);
  for (const auto& variable : {sum, mean})
    EXPECT_EQ(values_of(variable->value()), (std::vector<float>{121, 122})) << variable->name();
}

TEST(OwnVariables, EachWorkerAppliesTheGradientsThatItHasAccumulated) {
  constexpr int kSteps = 61, kAccumulated = 4;
  for (const int workers : {1, 2, 3}) {
    SCOPED_TRACE(str(workers, " workers"));
    Job job(workers);
    const auto strategy = job.strategy();
    const auto scope = strategy->scope();
    const auto weight = zero();
    const auto sgd = optim::SGD(1.0, {.gradients = {.accumulation_steps = kAccumulated}});
    sgd.build({weight});
    const auto step = strategy->function([&] {
      Value loss = 0.0 - weight->read();
      sgd.minimize(loss, {weight});
      return loss;
    });
    const auto coordinator = job.coordinator(*strategy);
    coordinator->wait_for_workers();
    for (int i = 0; i < kSteps; ++i) coordinator->schedule(step);
    coordinator->join(kPatience);
    double waiting = 0;
    for (const Tensor& sum : on_workers(*coordinator, sgd, "gradient_accumulator")) {
      EXPECT_GT(sum.item(), -kAccumulated) << "every fourth call of a worker applies them";
      waiting += sum.item();
    }
    EXPECT_EQ(kAccumulated * weight->value().item() - waiting, kSteps) << "each gradient is -1";
    EXPECT_EQ(sgd.iterations()->value().item(), kSteps);
  }
}

TEST(OwnVariables, OptimizersOfOneNameAccumulateEachItsOwn) {
  Job job(1);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto first = zero(), second = zero();
  const auto twos = optim::SGD(1.0, {.gradients = {.accumulation_steps = 2}}),
             fours = optim::SGD(10.0, {.gradients = {.accumulation_steps = 4}});
  twos.build({first});
  fours.build({second});
  const auto step = strategy->function([&] {
    Value loss = 0.0 - (first->read() + second->read());
    twos.minimize(loss, {first});
    fours.minimize(loss, {second});
    return loss;
  });
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < 9; ++i) coordinator->schedule(step);
  coordinator->join(kPatience);
  EXPECT_EQ(first->value().item(), 4);
  EXPECT_EQ(second->value().item(), 20);
  EXPECT_EQ(on_workers(*coordinator, twos, "gradient_accumulator")[0].item(), -1);
  EXPECT_EQ(on_workers(*coordinator, fours, "gradient_accumulator")[0].item(), -1);
}

TEST(OwnVariables, ALossScaleIsLoweredByTheWorkerWhoseGradientsAreNotFinite) {
  constexpr int kSteps = 60, kBad = 12;
  constexpr double kScale = 0x1p30;
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto weight = zero();
  const auto sgd =
      optim::SGD(1.0, {.gradients = {.loss_scale = optim::LossScale{
                                         .initial_scale = kScale, .dynamic_growth_steps = 1000}}});
  sgd.build({weight});
  const auto step = strategy->function([&](const Value& x) {
    Value loss = 0.0 - weight->read() * x;
    sgd.minimize(loss, {weight});
    return loss;
  });
  const auto coordinator = job.coordinator(*strategy);
  coordinator->wait_for_workers();
  for (int i = 0; i < kSteps; ++i)
    coordinator->schedule(step, i % (kSteps / kBad) == 0 ? INFINITY : 1.0f);
  coordinator->join(kPatience);
  double halvings = 0;
  for (const Tensor& scale : on_workers(*coordinator, sgd, "dynamic_scale"))
    halvings += std::log2(kScale / scale.item());
  EXPECT_EQ(halvings, kBad) << "one for each, on the worker that had it";
  EXPECT_EQ(weight->value().item(), kSteps - kBad) << "all others are applied";
  EXPECT_EQ(sgd.iterations()->value().item(), kSteps);
  EXPECT_EQ(variable_of(sgd, "skipped_updates")->value().item(), kBad);
  EXPECT_EQ(sgd.loss_scale(), kScale) << "the chief has computed nothing";
}

TEST(OwnVariables, PowerSgdKeepsItsStateOnEachWorker) {
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto weight =
      create_variable({.name = "w", .spec = {DType::kFloat32, {64, 48}}, .initial_value = [] {
                         return Tensor::zeros(DType::kFloat32, {64, 48});
                       }});
  const auto sgd = optim::SGD(1.0, {.gradients = {.power_sgd = optim::PowerSgdOptions{.rank = 1}}});
  sgd.build({weight});
  const auto step = strategy->function([&] {
    Value loss = 0.0 - ops::reduce_sum(weight->read());
    sgd.minimize(loss, {weight});
    return loss;
  });
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < 20; ++i) coordinator->schedule(step);
  coordinator->join(kPatience);
  // A gradient of ones has rank 1.
  for (const float value : values_of(weight->value())) ASSERT_NEAR(value, 20, 0.1);
}

TEST(OwnVariables, AreTheChiefsAloneUntilAFunctionUsesThem) {
  Job job(1);
  // Of one chief after the other: the value before a function has added 1, and after it.
  const auto chief = [&](std::optional<float> assigned) {
    const auto strategy = job.strategy();
    const auto scope = strategy->scope();
    const auto variable = on_read("v", Aggregation::kMean);
    if (assigned) variable->assign(floats({*assigned, *assigned}));
    const float before = values_of(variable->value())[0];
    const auto step = strategy->function([&] {
      return variable->assign_add(ops::constant(floats({1, 1})));
    });
    const auto coordinator = job.coordinator(*strategy);
    coordinator->schedule(step);
    coordinator->join(kPatience);
    return std::pair(before, values_of(variable->value())[0]);
  };
  EXPECT_EQ(chief(5.0f), std::pair(5.0f, 6.0f));
  EXPECT_EQ(chief({}), std::pair(1.0f, 7.0f)) << "it goes on with what the servers have";
  EXPECT_EQ(chief(0.0f), std::pair(0.0f, 1.0f)) << "but with what it has loaded, or assigned";
}

TEST(OwnVariables, FunctionsOfTheChiefReadAndWriteWhatWorkersDo) {
  Job job(1);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto variable = on_read("v", Aggregation::kSum);
  const auto step = strategy->function(
      [&](const Value& x) { return variable->assign_add(ops::broadcast_to(x, Shape{2})); });
  EXPECT_EQ(values_of(strategy->run(step, 1.0f)[0]), (std::vector<float>{2, 3}));
  const auto coordinator = job.coordinator(*strategy);
  coordinator->schedule(step, 10.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(values_of(variable->value()), (std::vector<float>{12, 13}));
  EXPECT_EQ(values_of(strategy->run(step, 100.0f)[0]), (std::vector<float>{112, 113}));
  EXPECT_EQ(values_of(coordinator->schedule(step, 1000.0f).get(kPatience)),
            (std::vector<float>{1112, 1113}));
  const TemporaryFolder folder("ps");
  save_variables(folder.path() + "/v", {variable});
  variable->assign(floats({0, 0}));
  load_variables(folder.path() + "/v", {variable});
  EXPECT_EQ(values_of(variable->value()), (std::vector<float>{1112, 1113}));
}

}  // namespace
}  // namespace cohort::testing
