// Programs that train several things at once, or in turns: what is updated first is seen by what
// follows, under every strategy of one host and for uneven shares.
#include <gtest/gtest.h>

#include "cohort.h"
#include "tests/strategies/training_testing.h"
#include "tests/strategies/variables_testing.h"

namespace cohort {
namespace {

class SeveralModelsTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kMaxReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  const std::unique_ptr<Strategy> strategy_ = make_strategy(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, SeveralModelsTest, testing::ValuesIn(all_cases()));

// Two optimizers take turns in one step, one of them twice, and each loss reads what is there by
// then.
TEST_P(SeveralModelsTest, ALossSeesTheUpdatesBeforeIt) {
  const auto scope = strategy_->scope();
  const auto d = on_write(number(0.5, DType::kFloat64), Aggregation::kNone),
             g = on_write(number(-0.8, DType::kFloat64), Aggregation::kNone);
  const auto plain = optim::SGD(0.1), heavy = optim::SGD(0.05, {.momentum = 0.5});
  const auto step = strategy_->function([&](const BatchValues& batch) {
    const Value x = batch["x"];
    const auto mean_square = [&](const Value& error) {
      return ops::reduce_sum(ops::square(error)) / static_cast<double>(batch.global_rows());
    };
    const Value first = mean_square(x * d->read() - 1.0);
    plain.minimize(first, {d});
    const Value second = mean_square(x * d->read() * g->read() + 2.0);
    heavy.minimize(second, {g});
    const Value third = mean_square(x * d->read() - g->read());
    plain.minimize(third, {d, g});
    return std::vector<Value>{first, second, third};
  });

  double d_now = 0.5, g_now = -0.8, momentum = 0;
  int steps = 0;
  for (const int64_t rows : {5, 1, 8}) {
    const data::Batch batch{{"x", numbers(DType::kFloat64, {rows}, static_cast<double>(rows))}};
    const auto mean = [&](const std::function<double(double)>& f) {
      double sum = 0;
      for (const double x : batch["x"].values<double>()) sum += f(x);
      return sum / static_cast<double>(rows);
    };
    const auto mean_square = [&](const std::function<double(double)>& error) {
      return mean([&](double x) { return error(x) * error(x); });
    };
    std::vector<double> expected;

    const auto first = [&](double x) { return x * d_now - 1; };
    expected.push_back(mean_square(first));
    d_now -= 0.1 * mean([&](double x) { return 2 * first(x) * x; });

    const auto second = [&](double x) { return x * d_now * g_now + 2; };
    expected.push_back(mean_square(second));
    momentum = 0.5 * momentum - 0.05 * mean([&](double x) { return 2 * second(x) * x * d_now; });
    g_now += momentum;

    const auto third = [&](double x) { return x * d_now - g_now; };
    expected.push_back(mean_square(third));
    const double of_d = mean([&](double x) { return 2 * third(x) * x; }),
                 of_g = mean([&](double x) { return -2 * third(x); });
    d_now -= 0.1 * of_d;
    g_now -= 0.1 * of_g;

    const auto losses = strategy_->run(step, split(*strategy_, batch));
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(strategy_->reduce(ReduceOp::kSum, losses[i]).item(), expected[i], 1e-12)
          << "loss " << i << " of " << rows << " rows";
    EXPECT_NEAR(d->value().item(), d_now, 1e-12);
    EXPECT_NEAR(g->value().item(), g_now, 1e-12);
    for (const auto& variable : {d, g}) expect_equal_copies(*strategy_, variable);
    ++steps;
    EXPECT_EQ(plain.iterations()->value().item(), 2 * steps);
    EXPECT_EQ(heavy.iterations()->value().item(), steps);
  }
}

// Two models with a layer in common, each with an optimizer and a loss of its own, are trained in
// turns, evaluated in between, and predict. All numbers there are to see.
std::vector<double> train_in_turns(Strategy& strategy) {
  const auto scope = strategy.scope();
  set_global_seed(3);
  const nn::Layer trunk = nn::Dense(6, {.activation = nn::tanh, .name = "trunk"});
  auto classifier = nn::Sequential({trunk, nn::Dense(3, {.name = "classes"})}),
       regressor = nn::Sequential({trunk, nn::Dense(1, {.name = "number"})});
  classifier.compile({.optimizer = optim::Adam(0.02),
                      .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                      .metrics = {metrics::SparseCategoricalAccuracy("accuracy")}});
  regressor.compile(
      {.optimizer = optim::SGD(0.05, {.momentum = 0.9}), .loss = losses::MeanSquaredError()});

  constexpr int64_t kRows = 11;
  Tensor classes(DType::kInt32, {kRows});
  for (int i = 0; i < kRows; ++i) classes.data<int32_t>()[i] = i * i % 3;
  const Tensor x = numbers(DType::kFloat32, {kRows, 4}, 1),
               targets = numbers(DType::kFloat32, {kRows, 1}, 2);
  const auto classified = data::from_tensor_slices({{"x", x}, {"label", classes}}).batch(4),
             measured = data::from_tensor_slices({{"x", x}, {"label", targets}}).batch(3);

  std::vector<double> seen;
  for (int round = 0; round < 3; ++round) {
    seen.push_back(classifier.fit(classified, {.verbose = Verbose::kSilent})["loss"][0]);
    seen.push_back(regressor.evaluate(measured).at("loss"));
    seen.push_back(regressor.fit(measured, {.verbose = Verbose::kSilent})["loss"][0]);
    seen.push_back(classifier.evaluate(classified).at("accuracy"));
  }
  for (Model* model : {&classifier, &regressor}) {
    for (const double y : to_doubles(model->predict(x, {.batch_size = 5}))) seen.push_back(y);
    for (const auto& variable : model->variables()) {
      expect_equal_copies(strategy, variable);
      for (const double w : to_doubles(variable->value())) seen.push_back(w);
    }
  }
  return seen;
}

TEST_P(SeveralModelsTest, ModelsThatShareALayerTrainInTurnsAsOnOneDevice) {
  const auto expected = train_in_turns(default_strategy()), found = train_in_turns(*strategy_);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-4) << "number " << i;
}

}  // namespace
}  // namespace cohort
