// Moving averages of variables: which updates they follow, and what becomes of the variables.
#include <limits>

#include <gmock/gmock.h>

#include "core/ops/array_ops.h"
#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

using ::testing::ElementsAre;
using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

VariablePtr average_of(const Optimizer& optimizer, const VariablePtr& variable) {
  for (const VariablePtr& kept : optimizer.variables())
    if (kept->name() == "optimizer/average/" + variable->name()) return kept;
  ADD_FAILURE() << "no average of " << variable->name();
  return nullptr;
}

class EmaReplicasTest : public testing::MirroredTest {
 protected:
  // Runs a step in which the gradient of the last replica is `last`, and of all others 0.
  static void run(Strategy& strategy, const Function& step, double last) {
    PerReplica<std::vector<Tensor>> inputs(static_cast<size_t>(GetParam()));
    for (auto& replica : inputs) replica = {testing::vector({0})};
    inputs[inputs.size() - 1] = {testing::vector({last})};
    strategy.run(step, inputs);
  }
  static void expect_copies(const VariablePtr& variable, double value) {
    for (int r = 0; r < GetParam(); ++r)
      EXPECT_THAT(to_vector(variable->storage(r)), ElementsAre(value)) << "of replica " << r;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, EmaReplicasTest, ::testing::Values(1, 2, 3));

TEST_P(EmaReplicasTest, FollowsEveryUpdateFromTheFirstOne) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{.momentum = 0.5}});
  const Function step = testing::step_along_input(sgd, weight);
  const auto expect = [&](double gradient, double value, double average) {
    run(strategy, step, gradient);
    expect_copies(weight, value);
    expect_copies(average_of(sgd, weight), average);
  };
  expect(2, -1, -1);
  expect(-4, 3, 1);
  expect(1, 2, 1.5);
  sgd.swap_averages({weight});
  expect_copies(weight, 1.5);
  expect_copies(average_of(sgd, weight), 2);
  sgd.swap_averages({weight});
  expect(0, 2, 1.75);
  sgd.finalize_variable_values({weight});
  expect_copies(weight, 1.75);
  expect_copies(average_of(sgd, weight), 1.75);
}

TEST_P(EmaReplicasTest, IsNotMovedByCallsThatAreNoUpdates) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1, {.gradients = {.accumulation_steps = 2, .loss_scale = LossScale{}},
                                .ema = EmaOptions{.momentum = 0.5}});
  const Function step = testing::step_along_input(sgd, weight);
  const auto expect = [&](double gradient, double value, double average) {
    run(strategy, step, gradient);
    expect_copies(weight, value);
    expect_copies(average_of(sgd, weight), average);
  };
  expect(kInfinity, 1, 1);
  expect(0, 1, 1);  // left out
  expect(2, 1, 1);
  expect(4, -2, -2);  // the first update
  expect(2, -2, -2);
  expect(2, -4, -3);
  expect(kInfinity, -4, -3);
  expect(0, -4, -3);
}

TEST_P(EmaReplicasTest, TakesThePlaceOfVariablesAsOftenAsAsked) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{.momentum = 0.5, .overwrite_frequency = 2}});
  const Function step = testing::step_along_input(sgd, weight);
  const auto expect = [&](double gradient, double value, double average) {
    run(strategy, step, gradient);
    expect_copies(weight, value);
    expect_copies(average_of(sgd, weight), average);
  };
  expect(1, 0, 0);
  expect(-4, 2, 2);
  expect(1, 1, 1.5);
  expect(0, 1.25, 1.25);
}

TEST(Ema, OfAVariableThatIsTrainedLaterBeginsWithIt) {
  const auto early = make_weight("early", {1}), late = make_weight("late", {8});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{.momentum = 0.5}});
  testing::step_along_input(sgd, early)({testing::vector({1})});
  testing::step_along_input(sgd, late)({testing::vector({4})});
  EXPECT_THAT(to_vector(average_of(sgd, late)->value()), ElementsAre(6));
}

TEST(Ema, FollowsAVariableWithoutAGradient) {
  const auto weight = make_weight("w", {1}), idle = make_weight("idle", {3});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{.momentum = 0.5}});
  sgd.build({weight, idle});
  idle->assign(testing::vector({5}));  // as loaded weights are
  const Function step([&](const std::vector<Value>& in) {
    sgd.minimize(ops::reduce_sum(weight->read() * in[0]), {weight, idle});
    return std::vector<Value>{};
  });
  step({testing::vector({2})});
  EXPECT_THAT(to_vector(average_of(sgd, idle)->value()), ElementsAre(5));
  idle->assign(testing::vector({7}));
  step({testing::vector({2})});
  sgd.finalize_variable_values({weight, idle});
  EXPECT_THAT(to_vector(idle->value()), ElementsAre(6));
}

TEST(Ema, FollowsRowsWithoutAGradient) {
  const auto table = make_weight("table", Tensor::from<double>({1, 2, 3}, {3, 1}));
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{.momentum = 0.5}});
  const Function step([&](const std::vector<Value>& in) {
    sgd.minimize(ops::reduce_sum(ops::gather(table->read(), in[0])), {table});
    return std::vector<Value>{};
  });
  for (const int32_t row : {0, 0, 1}) step({Tensor::from<int32_t>({row}, {1})});
  EXPECT_THAT(to_vector(table->value()), ElementsAre(-1, 1, 3));
  EXPECT_THAT(to_vector(average_of(sgd, table)->value()), ElementsAre(-0.75, 1.5, 3));
}

TEST(Ema, IsOfWhatConstraintsLeave) {
  const auto weight = create_variable(
      {.name = "w",
       .spec = {DType::kFloat64, {1}},
       .initial_value = [] { return testing::vector({1}); },
       .constraint = [](const Value& x) { return ops::maximum(x, ops::constant(0, x.dtype())); }});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{.momentum = 0.5}});
  const Function step = testing::step_along_input(sgd, weight);
  for (const double gradient : {0, 5}) step({testing::vector({gradient})});
  EXPECT_THAT(to_vector(average_of(sgd, weight)->value()), ElementsAre(0.5));
}

TEST(Ema, ChangesNothingBeforeAnUpdate) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{}});
  sgd.finalize_variable_values({weight});
  sgd.build({weight});
  weight->assign(testing::vector({5}));  // as loaded weights are
  sgd.swap_averages({weight});
  sgd.finalize_variable_values({weight});
  EXPECT_THAT(to_vector(weight->value()), ElementsAre(5));

  const Optimizer plain = SGD(1);
  testing::step_along_input(plain, weight)({testing::vector({1})});
  plain.finalize_variable_values({weight});
  EXPECT_THAT(to_vector(weight->value()), ElementsAre(4)) << "there are no averages";
}

TEST(Ema, NamesOptionsOutOfRange) {
  EXPECT_EQ(testing::error_of([] { SGD(1, {.ema = EmaOptions{.momentum = 1}}); }),
            "ema: momentum must be in [0, 1), got 1");
  EXPECT_EQ(testing::error_of([] { Adam(1, {.ema = EmaOptions{.overwrite_frequency = 0}}); }),
            "ema: overwrite_frequency must be at least 1, got 0");
}

TEST(Ema, NeedsVariablesThatAreTheSameOnAllReplicas) {
  const auto own = create_variable({.name = "own",
                                    .spec = {DType::kFloat64, {1}},
                                    .initial_value = [] { return testing::vector({1}); },
                                    .synchronization = Synchronization::kOnRead,
                                    .aggregation = Aggregation::kMean});
  const Optimizer sgd = SGD(1, {.ema = EmaOptions{}});
  EXPECT_THAT(testing::error_of([&] { sgd.build({own}); }, Code::kUnimplemented),
              ::testing::HasSubstr("variable \"own\" has no average"));
}

}  // namespace
}  // namespace cohort::optim
