// Dynamic loss scaling: when the scale changes, and what a skipped update leaves alone.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

VariablePtr state(const Optimizer& optimizer, const std::string& name) {
  for (const VariablePtr& variable : optimizer.variables())
    if (variable->name() == "optimizer/" + name) return variable;
  ADD_FAILURE() << "no variable " << name;
  return nullptr;
}

double number(const Optimizer& optimizer, const std::string& name) {
  return state(optimizer, name)->value().item();
}

class LossScaleReplicasTest : public testing::MirroredTest {
 protected:
  // Runs a step in which the gradient of the last replica is `last`, and of all others 0.
  static void run(Strategy& strategy, const Function& step, const std::vector<double>& last) {
    PerReplica<std::vector<Tensor>> inputs(static_cast<size_t>(GetParam()));
    for (auto& replica : inputs) replica = {testing::vector(std::vector<double>(last.size()))};
    inputs[inputs.size() - 1] = {testing::vector(last)};
    strategy.run(step, inputs);
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, LossScaleReplicasTest, ::testing::Values(1, 2, 3));

TEST_P(LossScaleReplicasTest, HalvesForOneReplicaAndDoublesAfterGoodUpdates) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd =
      SGD(0.5, {.gradients = {.loss_scale = LossScale{.dynamic_growth_steps = 3}}});
  const Function step = testing::step_along_input(sgd, weight);
  EXPECT_EQ(sgd.loss_scale(), 0x1p15);
  const auto expect = [&](double gradient, double scale, int counter, int skipped, double value) {
    run(strategy, step, {gradient});
    EXPECT_EQ(number(sgd, "dynamic_counter"), counter);
    EXPECT_EQ(number(sgd, "skipped_updates"), skipped);
    for (int r = 0; r < GetParam(); ++r) {
      EXPECT_EQ(to_vector(state(sgd, "dynamic_scale")->storage(r)), std::vector{scale});
      EXPECT_EQ(to_vector(weight->storage(r)), std::vector{value});
    }
  };
  expect(1, 0x1p15, 1, 0, 0.5);
  expect(kInfinity, 0x1p14, 0, 1, 0.5);
  expect(kNaN, 0x1p13, 0, 2, 0.5);
  expect(0.5, 0x1p13, 1, 2, 0.25);
  expect(0.5, 0x1p13, 2, 2, 0);
  expect(-1, 0x1p14, 0, 2, 0.5);
  expect(1e305, 0x1p13, 0, 3, 0.5);  // not finite once it is scaled
}

TEST_P(LossScaleReplicasTest, EndsWithAnErrorAtTheLowestScale) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(0.5, {.gradients = {.loss_scale = LossScale{.initial_scale = 1.5}}});
  const Function step = testing::step_along_input(sgd, weight);
  run(strategy, step, {kNaN});
  EXPECT_EQ(sgd.loss_scale(), 1) << "not lower";
  EXPECT_THAT(testing::error_of([&] { run(strategy, step, {kNaN}); }, Code::kOutOfRange),
              ::testing::HasSubstr("gradients are not finite, even with the lowest loss scale, 1"));
  testing::expect_near(weight->value(), {1});
  // Replicas that have combined values do not go on after an error.
  if (GetParam() > 1) {
    testing::error_of([&] { run(strategy, step, {1}); }, Code::kOutOfRange);
  } else {
    run(strategy, step, {1});
    testing::expect_near(weight->value(), {0.5});
  }
}

TEST(LossScale, DoublesAfterTwoThousandUpdatesInARow) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1e-6, {.gradients = {.loss_scale = LossScale{}}});
  const Function step = testing::step_along_input(sgd, weight);
  const auto update = [&](int times, double gradient) {
    for (int i = 0; i < times; ++i) step({testing::vector({gradient})});
  };
  update(1999, 1);
  update(1, kInfinity);
  EXPECT_EQ(sgd.loss_scale(), 0x1p14) << "counted anew";
  update(1999, 1);
  EXPECT_EQ(sgd.loss_scale(), 0x1p14);
  update(1, 1);
  EXPECT_EQ(sgd.loss_scale(), 0x1p15);
}

// An update of four steps is left out as a whole, and the scale stays the same within it.
TEST_P(LossScaleReplicasTest, SkipsWhatWasAccumulated) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1, {.gradients = {.accumulation_steps = 2,
                                              .loss_scale = LossScale{.dynamic_growth_steps = 1}}});
  const Function step = testing::step_along_input(sgd, weight);
  run(strategy, step, {kInfinity});
  EXPECT_EQ(sgd.loss_scale(), 0x1p15);
  run(strategy, step, {1});
  EXPECT_EQ(sgd.loss_scale(), 0x1p14);
  testing::expect_near(weight->value(), {1});
  run(strategy, step, {0.5});
  run(strategy, step, {1});
  EXPECT_EQ(sgd.loss_scale(), 0x1p15);
  testing::expect_near(weight->value(), {0.25});
}

// Every rule, with decay: its state, and the number of the update that schedules and bias
// corrections ask for. The same without a scale.
class SkippingTest : public ::testing::TestWithParam<NonFinite> {};
INSTANTIATE_TEST_SUITE_P(Policies, SkippingTest,
                         ::testing::Values(NonFinite::kKeep, NonFinite::kSkip));

TEST_P(SkippingTest, ASkippedUpdateHasNotBeen) {
  GradientOptions skipping = {.non_finite = GetParam()};
  if (GetParam() == NonFinite::kKeep) skipping.loss_scale = LossScale{};
  const Schedule schedule = schedules::ExponentialDecay(0.5, 1, 0.5);
  const std::vector<std::function<Optimizer(const GradientOptions&)>> rules = {
      [&](auto& g) {
        return SGD(schedule, {.momentum = 0.9, .weight_decay = {.factor = 0.1}, .gradients = g});
      },
      [&](auto& g) { return Adam(schedule, {.amsgrad = true, .gradients = g}); },
      [&](auto& g) { return RMSprop(0.5, {.momentum = 0.5, .centered = true, .gradients = g}); },
      [&](auto& g) { return Lamb(0.5, {.gradients = g}); }};
  for (const auto& make : rules) {
    const auto plain = make_weight("w", {1, -2}), scaled = make_weight("w", {1, -2});
    const Optimizer a = make({}), b = make(skipping);
    const Function along_a = testing::step_along_input(a, plain),
                   along_b = testing::step_along_input(b, scaled);
    for (const double gradient : {1.0, kInfinity, -0.5, kNaN, 0.25}) {
      if (std::isfinite(gradient)) along_a({testing::vector({gradient, 2})});
      along_b({testing::vector({gradient, 2})});
    }
    EXPECT_EQ(to_vector(scaled->value()), to_vector(plain->value()));
    EXPECT_EQ(b.learning_rate(), a.learning_rate());
    EXPECT_EQ(b.iterations()->value().item(), 5) << "calls, skipped ones too";
    for (const VariablePtr& slot : a.variables()) {
      if (slot == a.iterations()) continue;
      EXPECT_EQ(to_vector(state(b, slot->name().substr(10))->value()), to_vector(slot->value()))
          << slot->name();
    }
  }
}

TEST(LossScale, IsTakenOffBeforeClipping) {
  const LossScale scale;
  for (const auto& options : {GradientOptions{.clipvalue = 0.5, .loss_scale = scale},
                              GradientOptions{.clipnorm = 0.5, .loss_scale = scale},
                              GradientOptions{.global_clipnorm = 0.5, .loss_scale = scale}}) {
    const auto weight = make_weight("w", {1});
    const Function step = testing::step_along_input(SGD(1, {.gradients = options}), weight);
    step({testing::vector({0.25})});
    EXPECT_EQ(weight->value().item(), 0.75);
    step({testing::vector({4})});
    EXPECT_EQ(weight->value().item(), 0.25);
  }
}

TEST(LossScale, GradientsOfOnesOwnAreThoseOfTheScaledLoss) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(1, {.gradients = {.loss_scale = LossScale{}}});
  const Function step([&](const std::vector<Value>& in) {
    const Value loss = ops::reduce_sum(weight->read() * in[0]);
    const auto found = gradients(sgd.scale_loss(loss), {weight});
    sgd.apply_gradients(found, {weight});
    return std::vector<Value>{found[0].values};
  });
  EXPECT_EQ(step({testing::vector({0.25})})[0].item(), 0x1p13);
  EXPECT_EQ(weight->value().item(), 0.75);
}

// A gradient beneath the smallest float16, 6e-8, is lost without.
TEST(LossScale, KeepsGradientsThatFloat16CannotHold) {
  for (const bool is_scaled : {false, true}) {
    const auto weight = make_weight("w", Tensor::from<float>({1}, {1, 1}));
    const Optimizer sgd = SGD(1e7);
    if (is_scaled) sgd.use_loss_scale();
    const Function step([&](const std::vector<Value>& in) {
      sgd.minimize(ops::reduce_sum(ops::matmul(in[0], weight->read())) * 1e-8, {weight});
      return std::vector<Value>{};
    });
    PerReplica<std::vector<Tensor>> inputs(1);
    inputs[0] = {Tensor::from<float>({1}, {1, 1})};
    default_strategy().run(step, inputs, {.precision = Precision::kMixedFloat16});
    EXPECT_NEAR(weight->value().item(), is_scaled ? 0.9 : 1, 1e-4);
  }
}

TEST(LossScale, StaysFiniteWhereGradientsAreZero) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(
      1,
      {.gradients = {.loss_scale = LossScale{.initial_scale = 0x1p59, .dynamic_growth_steps = 1}}});
  const Function step = testing::step_along_input(sgd, weight);
  for (int i = 0; i < 3; ++i) step({testing::vector({0})});
  EXPECT_EQ(sgd.loss_scale(), 0x1p60);
}

TEST(LossScale, IsTurnedOnOnceAndIsOneWhereItIsOff) {
  const Optimizer sgd = SGD(1);
  EXPECT_EQ(sgd.loss_scale(), 1);
  sgd.use_loss_scale({.initial_scale = 8});
  sgd.use_loss_scale();
  EXPECT_EQ(sgd.loss_scale(), 8);
}

TEST(LossScale, RefusesNumbersOutOfRange) {
  const auto refused = [](const GradientOptions& options) {
    return testing::error_of([&] { SGD(1, {.gradients = options}); });
  };
  for (const double scale : {0.5, -1.0, kNaN, kInfinity})
    EXPECT_THAT(refused({.loss_scale = LossScale{.initial_scale = scale}}),
                ::testing::HasSubstr("initial_scale"));
  EXPECT_THAT(refused({.loss_scale = LossScale{.dynamic_growth_steps = 0}}),
              ::testing::HasSubstr("dynamic_growth_steps of the loss scale must be at least 1"));
  EXPECT_THAT(refused({.power_sgd = PowerSgdOptions{}, .loss_scale = LossScale{}}),
              ::testing::HasSubstr("loss_scale and power_sgd cannot both be set"));
  const Optimizer compressing = SGD(1, {.gradients = {.power_sgd = PowerSgdOptions{}}});
  EXPECT_THAT(testing::error_of([&] { compressing.use_loss_scale(); }),
              ::testing::HasSubstr("power_sgd"));
}

}  // namespace
}  // namespace cohort::optim
