// Gradients that are not finite on one replica: what becomes of the step on all of them.
#include <limits>

#include <gmock/gmock.h>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/ops/array_ops.h"
#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_weight;
using ::testing::Not;
using testing::to_vector;
using testing::VariablePtr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kStep = 7;  // as which steps run, where that matters

class NonFiniteTest : public testing::MirroredTest {
 protected:
  // Runs a step with these inputs of the last replica, and of all others.
  static void run(Strategy& strategy, const Function& step, const std::vector<Tensor>& last,
                  const std::vector<Tensor>& others) {
    PerReplica<std::vector<Tensor>> inputs(static_cast<size_t>(GetParam()));
    for (auto& replica : inputs) replica = others;
    inputs[inputs.size() - 1] = last;
    strategy.run(step, inputs, {.step = kStep});
  }
  // The same of a step along one input, which is 0 for all others.
  static void run(Strategy& strategy, const Function& step, const std::vector<double>& last) {
    run(strategy, step, {testing::vector(last)},
        {testing::vector(std::vector<double>(last.size()))});
  }
  static std::string error_of_run(Strategy& strategy, const Function& step,
                                  const std::vector<Tensor>& last,
                                  const std::vector<Tensor>& others) {
    return testing::error_of([&] { run(strategy, step, last, others); }, Code::kOutOfRange);
  }
  static void expect_on_all(const VariablePtr& weight, const std::vector<double>& value) {
    for (int r = 0; r < GetParam(); ++r) EXPECT_EQ(to_vector(weight->storage(r)), value) << r;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, NonFiniteTest, ::testing::Values(1, 2, 3));

std::string refusal_of(const std::string& variable) {
  return "the gradient of variable \"" + variable + "\" is not finite";
}

double skipped(const Optimizer& optimizer) {
  for (const VariablePtr& variable : optimizer.variables())
    if (variable->name() == "optimizer/skipped_updates") return variable->value().item();
  return -1;
}

TEST_P(NonFiniteTest, IsAppliedUnlessAskedFor) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1, 1});
  const Optimizer sgd = SGD(0.5);
  run(strategy, testing::step_along_input(sgd, weight), {-kInfinity, 1});
  expect_on_all(weight, {kInfinity, 0.5});
  EXPECT_EQ(skipped(sgd), -1) << "nothing is counted";
}

TEST_P(NonFiniteTest, IsSkippedByAllReplicas) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1, 1});
  const Optimizer sgd = SGD(0.5, {.gradients = {.non_finite = NonFinite::kSkip}});
  const Function step = testing::step_along_input(sgd, weight);
  const auto expect = [&](const std::vector<double>& gradient, int count,
                          const std::vector<double>& value) {
    run(strategy, step, gradient);
    expect_on_all(weight, value);
    EXPECT_EQ(skipped(sgd), count);
  };
  expect({1, 0}, 0, {0.5, 1});
  expect({1, kNaN}, 1, {0.5, 1});
  expect({-kInfinity, 1}, 2, {0.5, 1});
  expect({0, 1}, 2, {0.5, 0.5});
  EXPECT_EQ(sgd.iterations()->value().item(), 4) << "calls, skipped ones too";
}

TEST_P(NonFiniteTest, IsReplacedByZerosInTheGradientOfItsReplica) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1, 1, 1});
  const Function step =
      testing::step_along_input(SGD(0.5, {.gradients = {.non_finite = NonFinite::kZero}}), weight);
  run(strategy, step, {testing::vector({kNaN, 2, -kInfinity})}, {testing::vector({1, 1, 1})});
  const double others = GetParam() - 1;
  expect_on_all(weight, {1 - 0.5 * others, 1 - 0.5 * (others + 2), 1 - 0.5 * others});
}

TEST_P(NonFiniteTest, IsAnErrorThatChangesNothingAndNamesVariableReplicaAndStep) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(0.5, {.gradients = {.non_finite = NonFinite::kError}});
  const Function step = testing::step_along_input(sgd, weight);
  run(strategy, step, {1});
  for (const double bad : {kNaN, kInfinity}) {
    const std::string error =
        error_of_run(strategy, step, {testing::vector({bad})}, {testing::vector({0})});
    EXPECT_THAT(error, AllOf(HasSubstr(refusal_of("w")), HasSubstr("non_finite = kError")));
    if (GetParam() > 1) {
      EXPECT_THAT(error, HasSubstr(str("on replica ", GetParam() - 1, " in step ", kStep)));
    }
    expect_on_all(weight, {0.5});
  }
  run(strategy, step, {1});
  expect_on_all(weight, {0});
}

// Whichever it is, and in whichever bucket.
TEST_P(NonFiniteTest, IsAnErrorThatNamesNoOtherVariable) {
  for (const size_t bad : {0, 1, 2}) {
    MirroredStrategy strategy(testing::in_buckets_of_one(first_cpus(GetParam())));
    const auto scope = strategy.scope();
    const auto weights = testing::make_three_weights();
    const Optimizer adam = Adam(0.1, {.gradients = {.non_finite = NonFinite::kError}});
    const Function step([&](const std::vector<Value>& in) {
      Value loss = ops::constant(0, DType::kFloat64);
      for (size_t i = 0; i < weights.size(); ++i)
        loss = loss + ops::reduce_sum(weights[i]->read() * in[i]);
      adam.minimize(loss, weights);
      return std::vector<Value>{};
    });
    const std::vector<Tensor> good(weights.size(), testing::vector({1}));
    std::vector<Tensor> last = good;
    last[bad] = testing::vector({kNaN});
    run(strategy, step, good, good);
    const std::string error = error_of_run(strategy, step, last, good);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i == bad)
        EXPECT_THAT(error, HasSubstr(refusal_of(weights[i]->name())));
      else
        EXPECT_THAT(error, Not(HasSubstr(refusal_of(weights[i]->name()))));
    }
  }
}

// The checks hold up the last bucket alone.
TEST_P(NonFiniteTest, IsLookedForWhileOtherGradientsAreSummed) {
  if (GetParam() == 1) GTEST_SKIP() << "one replica sums nothing";
  MirroredStrategy strategy(testing::in_buckets_of_one(first_cpus(GetParam())));
  const auto scope = strategy.scope();
  const auto weights = testing::make_three_weights();
  const Optimizer sgd = SGD(0.1, {.gradients = {.non_finite = NonFinite::kError}});
  const Function step = testing::step_along_product(sgd, weights);
  const GraphFunction scheduled =
      schedule_collectives(testing::trace_in(strategy, step, {{DType::kFloat64, {1}}}));
  size_t started = 0;
  for (const auto& node : scheduled.graph->nodes()) {
    if (node->op().name == "Require") break;
    started += node->op().name == "AllReduceStart" ? 1 : 0;
  }
  EXPECT_EQ(started, weights.size() - 1);
}

// --- Accumulation

TEST_P(NonFiniteTest, IsSkippedWithAllThatWasAccumulatedForTheUpdate) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd =
      SGD(1, {.gradients = {.accumulation_steps = 2, .non_finite = NonFinite::kSkip}});
  const Function step = testing::step_along_input(sgd, weight);
  run(strategy, step, {kInfinity});
  EXPECT_EQ(skipped(sgd), 0) << "that was no update yet";
  run(strategy, step, {1});
  EXPECT_EQ(skipped(sgd), 1);
  expect_on_all(weight, {1});
  run(strategy, step, {0.5});
  run(strategy, step, {1});
  expect_on_all(weight, {0.25});
}

TEST_P(NonFiniteTest, IsReplacedByZerosInTheSumOfItsCall) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1, 1});
  const Function step = testing::step_along_input(
      SGD(1, {.gradients = {.accumulation_steps = 2, .non_finite = NonFinite::kZero}}), weight);
  run(strategy, step, {kNaN, 1});
  run(strategy, step, {0.5, 1});
  expect_on_all(weight, {0.75, 0});
}

TEST_P(NonFiniteTest, IsAnErrorOfTheCallAndNotPartOfTheSum) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer sgd =
      SGD(1, {.gradients = {.accumulation_steps = 2, .non_finite = NonFinite::kError}});
  const Function step = testing::step_along_input(sgd, weight);
  run(strategy, step, {0.5});
  EXPECT_THAT(error_of_run(strategy, step, {testing::vector({kNaN})}, {testing::vector({0})}),
              HasSubstr(refusal_of("w")));
  run(strategy, step, {1});
  expect_on_all(weight, {0.25});
}

// --- Sparse gradients

class NonFiniteRowsTest : public NonFiniteTest {
 protected:
  // Trains a table of six rows of ones, each row that is looked up along its factor; returns it.
  static std::vector<double> trained(Strategy& strategy, const Optimizer& optimizer,
                                     const std::vector<std::vector<double>>& factors) {
    const auto table = make_weight("table", Tensor::full(DType::kFloat64, {6, 2}, 1));
    const Function step([&](const std::vector<Value>& in) {
      const Value rows = ops::gather(table->read(), in[0]);
      optimizer.minimize(ops::reduce_sum(ops::reduce_sum(rows, {1}) * in[1]), {table});
      return std::vector<Value>{};
    });
    const auto ids = [](int64_t a, int64_t b) { return Tensor::from<int64_t>({a, b}, {2}); };
    for (const auto& last : factors)
      run(strategy, step, {ids(3, 5), testing::vector(last)}, {ids(0, 5), testing::vector({1, 1})});
    expect_on_all(table, to_vector(table->storage(0)));
    return to_vector(table->value());
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, NonFiniteRowsTest, ::testing::Values(1, 2, 3));

TEST_P(NonFiniteRowsTest, AreSkippedByAllReplicas) {
  for (const auto& make : {+[](const GradientOptions& g) { return SGD(0.5, {.gradients = g}); },
                           +[](const GradientOptions& g) { return Adagrad(0.5, {.gradients = g}); },
                           +[](const GradientOptions& g) { return Adam(0.5, {.gradients = g}); }}) {
    MirroredStrategy strategy(first_cpus(GetParam()));
    const auto scope = strategy.scope();
    const Optimizer skipping = make({.non_finite = NonFinite::kSkip});
    EXPECT_EQ(trained(strategy, skipping, {{1, 2}, {kNaN, 2}, {3, 1}}),
              trained(strategy, make({}), {{1, 2}, {3, 1}}));
    EXPECT_EQ(skipped(skipping), 1);
  }
}

TEST_P(NonFiniteRowsTest, AreReplacedByZerosAlone) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const Optimizer zeroing = SGD(0.5, {.gradients = {.non_finite = NonFinite::kZero}});
  EXPECT_EQ(trained(strategy, zeroing, {{kNaN, 2}}), trained(strategy, SGD(0.5), {{0, 2}}));
}

TEST_P(NonFiniteRowsTest, AreAnErrorThatNamesTheirVariable) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const Optimizer strict = SGD(0.5, {.gradients = {.non_finite = NonFinite::kError}});
  EXPECT_THAT(testing::error_of(
                  [&] {
                    trained(strategy, strict, {{1, 1}, {kNaN, 1}});
                  },
                  Code::kOutOfRange),
              HasSubstr(refusal_of("table")));
}

// --- Options

// 80,000 is infinite in float16.
TEST(NonFinite, AGradientIsFiniteWhereOnlyTheSumOfItsElementsIsNotAFloat16) {
  for (const NonFinite policy : {NonFinite::kError, NonFinite::kSkip}) {
    const auto weight = make_weight("w", Tensor::from<float>({1, 1}, {2}).cast(DType::kFloat16));
    const Function step =
        testing::step_along_input(SGD(0x1p-14, {.gradients = {.non_finite = policy}}), weight);
    step({Tensor::from<float>({40000, 40000}, {2}).cast(DType::kFloat16)});
    testing::expect_near(weight->value(), {1 - 40000 / 16384.0, 1 - 40000 / 16384.0}, 2e-3);
  }
}

TEST(NonFinite, RefusesWhatItDoesNotGoTogetherWith) {
  const auto refused = [](const GradientOptions& options) {
    return testing::error_of([&] { SGD(1, {.gradients = options}); });
  };
  for (const NonFinite policy : {NonFinite::kError, NonFinite::kSkip, NonFinite::kZero}) {
    EXPECT_THAT(refused({.loss_scale = LossScale{}, .non_finite = policy}),
                HasSubstr("loss_scale and non_finite cannot both be set"));
    const Optimizer set = SGD(1, {.gradients = {.non_finite = policy}});
    EXPECT_THAT(testing::error_of([&] { set.use_loss_scale(); }), HasSubstr("non_finite"));
  }
  EXPECT_THAT(refused({.power_sgd = PowerSgdOptions{}, .non_finite = NonFinite::kSkip}),
              HasSubstr("kError and kZero are allowed"));
  for (const NonFinite policy : {NonFinite::kError, NonFinite::kZero})
    EXPECT_THAT(refused({.reduce_as = DType::kFloat16, .non_finite = policy}),
                HasSubstr("kSkip, which looks at sums, and bfloat16 are allowed"));
}

}  // namespace
}  // namespace cohort::optim
