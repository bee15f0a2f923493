#include "core/optim/optimizer.h"

#include <cmath>

#include <gmock/gmock.h>

#include "core/ops/array_ops.h"
#include "strategies/mirrored_strategy.h"
#include "tests/optim/testing.h"

namespace cohort::optim {
namespace {

using testing::error_of;
using testing::expect_near;
using testing::make_weight;
using testing::VariablePtr;

std::vector<std::string> names(const std::vector<VariablePtr>& variables) {
  std::vector<std::string> out;
  for (const auto& variable : variables) out.push_back(variable->name());
  return out;
}

TEST(OptimizerTest, NamesItsVariablesAfterThoseItTrains) {
  const auto weight = make_weight("dense/kernel", {1});
  const Optimizer adam = Adam(0.1);
  adam.build({weight});
  EXPECT_THAT(
      names(adam.variables()),
      ::testing::ElementsAre("optimizer/iterations", "optimizer/learning_rate",
                             "optimizer/momentum/dense/kernel", "optimizer/velocity/dense/kernel"));
}

TEST(OptimizerTest, CountsItsCallsAndObeysANewLearningRate) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(0.5);
  const Function step = testing::step_along_input(sgd, weight);
  step({testing::vector({1})});
  sgd.set_learning_rate(0.25);
  step({testing::vector({1})});
  expect_near(weight->value(), {0.25});
  EXPECT_EQ(sgd.iterations()->value().item(), 2);
  EXPECT_EQ(sgd.learning_rate(), 0.25);
}

TEST(OptimizerTest, FollowsASchedule) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(schedules::PiecewiseConstantDecay({0}, {0.5, 0.125}));
  const Function step = testing::step_along_input(sgd, weight);
  EXPECT_EQ(sgd.learning_rate(), 0.5);
  step({testing::vector({1})});
  EXPECT_EQ(sgd.learning_rate(), 0.125);
  step({testing::vector({1})});
  expect_near(weight->value(), {0.375});
  EXPECT_EQ(error_of([&] { sgd.set_learning_rate(1); }, Code::kFailedPrecondition),
            "the learning rate follows a schedule and cannot be set");
}

TEST(OptimizerTest, LeavesVariablesWithoutGradientAlone) {
  const auto used = make_weight("used", {1}), unused = make_weight("unused", {1});
  const Optimizer sgd = SGD(0.5, {.momentum = 0.9});
  const Function step([&](const std::vector<Value>&) {
    sgd.minimize(ops::reduce_sum(used->read()), {used, unused});
    return std::vector<Value>{};
  });
  ::testing::internal::CaptureStderr();
  step({});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: the loss does not depend on variable \"unused\"; it is not trained\n");
  expect_near(used->value(), {0.5});
  expect_near(unused->value(), {1});
}

TEST(OptimizerTest, SaysThatIntegersHaveNoGradient) {
  const auto weight = make_weight("weight", {1});
  const auto count =
      create_variable({.name = "count", .spec = {DType::kInt32, {}}, .initial_value = [] {
                         return Tensor::zeros(DType::kInt32, {});
                       }});
  const Optimizer sgd = SGD(0.5);
  const Function step([&](const std::vector<Value>&) {
    const Value product = weight->read() * ops::cast(count->read(), DType::kFloat64);
    sgd.minimize(ops::reduce_sum(product), {weight, count});
    return std::vector<Value>{};
  });
  ::testing::internal::CaptureStderr();
  step({});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: variable \"count\" is int32, which has no gradient; it is not trained\n");
}

// Those of a model that was not built yet, for instance.
TEST(OptimizerTest, WarnsOnceWhereThereIsNothingToTrain) {
  const Optimizer sgd = SGD(0.5);
  const Function step([&](const std::vector<Value>& in) {
    sgd.minimize(ops::reduce_sum(in[0]), {});
    return std::vector<Value>{};
  });
  ::testing::internal::CaptureStderr();
  step({testing::vector({1})});
  step({testing::vector({1, 2})});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: an optimizer was given no variables, so nothing is trained; a layer has none "
            "before it is built or called\n");
}

TEST(OptimizerTest, RefusesVariablesThatAreNull) {
  const auto weight = make_weight("w", {1});
  const Optimizer sgd = SGD(0.1);
  const Function step = function([&](Value x) {
    sgd.minimize(ops::reduce_sum(weight->read() * x), {weight, nullptr});
    return std::vector<Value>{};
  });
  const std::string said =
      "an optimizer was given 2 variables, of which number 1, counted from 0, is null";
  EXPECT_EQ(error_of([&] { step({testing::vector({1})}); }), said);
  EXPECT_EQ(error_of([&] { sgd.build({weight, nullptr}); }), said);
}

// As where the lists of two networks that share a layer are joined.
TEST(OptimizerTest, RefusesAVariableThatIsListedTwice) {
  const auto weight = make_weight("w", {1}), other = make_weight("w", {1});
  const Optimizer sgd = SGD(0.5);
  const auto step_with = [&](const std::vector<VariablePtr>& variables) {
    const Function step = function([&](Value x) {
      sgd.minimize(ops::reduce_sum((weight->read() + other->read()) * x), variables);
      return std::vector<Value>{};
    });
    step({testing::vector({1})});
  };
  const std::string said =
      "an optimizer was given variable \"w\" twice, as numbers 0 and 2, counted from 0; list it "
      "once";
  EXPECT_EQ(error_of([&] { step_with({weight, other, weight}); }), said);
  EXPECT_EQ(error_of([&] { sgd.build({weight, other, weight}); }), said);
}

// As those of two networks whose layers were given no names.
TEST(OptimizerTest, TellsOnceOfTwoVariablesOfOneName) {
  const auto first = make_weight("w", {1}), second = make_weight("w", {1});
  const Optimizer sgd = SGD(0.5);
  const Function step = function([&](Value x) {
    sgd.minimize(ops::reduce_sum((first->read() + second->read()) * x), {first, second});
    return std::vector<Value>{};
  });
  ::testing::internal::CaptureStderr();
  step({testing::vector({1})});
  step({testing::vector({1, 1})});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: an optimizer was given two variables named \"w\": they cannot be saved "
            "together, and those of layers started out equal; give one of their networks a name\n");
  for (const auto& weight : {first, second}) expect_near(weight->value(), {-0.5});
}

TEST(OptimizerTest, TakesTheRateOfAScheduleInFloat64) {
  const auto train = [](const Shape& shape, DType dtype) {
    const auto weight = make_weight("w", {1});
    const Optimizer adam = Adam(
        Schedule([&](const Value&) { return ops::constant(Tensor::full(dtype, shape, 0.5)); }));
    const Function step([&](const std::vector<Value>&) {
      adam.minimize(ops::reduce_sum(weight->read()), {weight});
      return std::vector<Value>{};
    });
    step({});
    EXPECT_EQ(adam.learning_rate(), 0.5);
    EXPECT_NEAR(weight->value().data<double>()[0], 0.5, 1e-5);
  };
  train({}, DType::kFloat64);
  train({}, DType::kFloat32);
  for (const TensorSpec& spec : std::vector<TensorSpec>{
           {DType::kFloat64, {1}}, {DType::kFloat64, {3}}, {DType::kInt64, {}}, {DType::kBool, {}}})
    EXPECT_EQ(error_of([&] { train(spec.shape, spec.dtype); }),
              str("the schedule of a learning rate must return a floating scalar, got ", spec));
}

TEST(OptimizerTest, RefusesGradientsThatDoNotFit) {
  const auto weight = make_weight("w", Tensor::full(DType::kFloat64, {2, 2}, 1));
  const Optimizer sgd = SGD(0.1);
  const auto apply = [&](const Shape& shape, DType dtype, int64_t rows) {
    const Function step([&](const std::vector<Value>&) {
      Gradient gradient{.values = ops::constant(Tensor::full(dtype, shape, 1))};
      if (rows > 0) gradient.indices = ops::constant(Tensor::full(DType::kInt64, {shape[0]}, 0));
      gradient.rows = rows;
      sgd.apply_gradients({gradient}, {weight});
      return std::vector<Value>{};
    });
    step({});
  };
  const std::string is = " does not fit variable \"w\", which is float64[2,2]";
  for (const Shape& shape : {Shape{}, Shape{2}, Shape{2, 1}, Shape{3}})
    EXPECT_EQ(error_of([&] { apply(shape, DType::kFloat64, 0); }),
              str("a gradient of float64", shape, is));
  EXPECT_EQ(error_of([&] {
              apply({2, 2}, DType::kFloat32, 0);
            }),
            "a gradient of float32[2,2]" + is);
  EXPECT_EQ(error_of([&] {
              apply({3, 1}, DType::kFloat64, 2);
            }),
            "a gradient of float64[3,1], for rows of 2," + is);
  EXPECT_EQ(error_of([&] {
              apply({3, 2}, DType::kFloat64, 4);
            }),
            "a gradient of float64[3,2], for rows of 4," + is);
  apply({3, 2}, DType::kFloat64, 2);
  apply({2, 2}, DType::kFloat64, 0);
}

struct WrongRule final : UpdateRule {
  size_t listed, left;
  WrongRule(size_t slots, size_t after) : listed(slots), left(after) {}
  std::vector<Slot> slots() const override { return std::vector<Slot>(listed, {.name = "m"}); }
  std::vector<Value> scalars(const Value&, const Value&) const override { return {}; }
  Value update(const Value& variable, const Value& gradient, std::vector<Value>& slots,
               const std::vector<Value>&) const override {
    slots.assign(left, gradient);
    return variable;
  }
};

TEST(OptimizerTest, RefusesARuleThatChangesTheNumberOfSlots) {
  for (const size_t left : {size_t{0}, size_t{2}}) {
    const Optimizer optimizer(std::make_shared<WrongRule>(1, left), {});
    const Function step = testing::step_along_input(optimizer, make_weight("w", {1}));
    EXPECT_THAT(error_of([&] { step({testing::vector({1})}); }),
                ::testing::HasSubstr(str("WrongRule was given 1 slots, and leaves ", left)));
  }
}

TEST(OptimizerTest, RefusesTwoSlotsOfOneName) {
  EXPECT_THAT(error_of([] { Optimizer(std::make_shared<WrongRule>(2, 2), {}); }),
              ::testing::EndsWith("WrongRule has two slots named \"m\""));
}

TEST(OptimizerTest, SumsTheGradientsOfAllPlacesThatReadAVariable) {
  const auto weight = make_weight("w", {3});
  const Optimizer sgd = SGD(1);
  const Function step([&](const std::vector<Value>&) {
    sgd.minimize(ops::reduce_sum(weight->read() * 2.0 + weight->read() * 0.5), {weight});
    return std::vector<Value>{};
  });
  step({});
  expect_near(weight->value(), {0.5});
}

TEST(OptimizerTest, LeavesExcludedVariablesUndecayed) {
  const auto kernel = make_weight("dense/kernel", {1}), bias = make_weight("dense/bias", {1});
  const Optimizer sgd = SGD(0.5, {.weight_decay = {.factor = 0.5, .exclude = {"bias"}}});
  const Function step([&](const std::vector<Value>&) {
    sgd.minimize(ops::reduce_sum((kernel->read() + bias->read()) * 0.0), {kernel, bias});
    return std::vector<Value>{};
  });
  step({});
  expect_near(kernel->value(), {0.75});
  expect_near(bias->value(), {1});
}

TEST(OptimizerTest, ExcludesFromDecayByWholePartsOfNames) {
  const auto is_decayed = [](const std::string& name, const std::vector<std::string>& exclude) {
    const auto weight = make_weight(name, {1});
    const Optimizer sgd = SGD(0.5, {.weight_decay = {.factor = 0.5, .exclude = exclude}});
    testing::step_along_input(sgd, weight)({testing::vector({0})});
    return testing::to_vector(weight->value())[0] != 1;
  };
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(is_decayed("debias/dense/kernel", {"bias"}));
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "warning: weight decay is to exclude \"bias\", which is no whole part of the name of any "
      "variable that is trained, such as \"debias/dense/kernel\"\n");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(is_decayed("debias/dense/bias", {"bias"}));
  EXPECT_FALSE(is_decayed("block/norm_12/gamma", {"norm"}));
  EXPECT_FALSE(is_decayed("block/norm_12/gamma", {"norm_12"}));
  EXPECT_FALSE(is_decayed("block/norm_12/gamma", {"norm/gamma"}));
  EXPECT_FALSE(is_decayed("gamma", {"gamma"}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  for (const char* other : {"norm_1", "norm_1x", "block/gamma", "gam", "", "norm/gamma/x", "_12"})
    EXPECT_TRUE(is_decayed("block/norm_12/gamma", {other})) << other;
  EXPECT_TRUE(is_decayed("norm_/gamma", {"norm"}));
  ::testing::internal::GetCapturedStderr();
}

// The weights {3} and {4, 0} after one step of SGD(1) along gradients equal to themselves.
std::vector<double> after_clipping(const GradientOptions& options) {
  const auto a = make_weight("a", {3}), b = make_weight("b", {4, 0});
  const Optimizer sgd = SGD(1, {.gradients = options});
  const Function step([&](const std::vector<Value>&) {
    const auto half_square = [](const VariablePtr& v) {
      return ops::reduce_sum(ops::square(v->read())) * 0.5;
    };
    sgd.minimize(half_square(a) + half_square(b), {a, b});
    return std::vector<Value>{};
  });
  step({});
  auto out = testing::to_vector(a->value());
  for (const double v : testing::to_vector(b->value())) out.push_back(v);
  return out;
}

TEST(ClippingTest, LimitsElementsNormsOrTheGlobalNorm) {
  using ::testing::DoubleNear;
  using ::testing::ElementsAre;
  const auto near = [](double x) { return DoubleNear(x, 1e-12); };
  EXPECT_THAT(after_clipping({}), ElementsAre(near(0), near(0), near(0)));
  EXPECT_THAT(after_clipping({.clipvalue = 1}), ElementsAre(near(2), near(3), near(0)));
  EXPECT_THAT(after_clipping({.clipnorm = 3.5}), ElementsAre(near(0), near(0.5), near(0)));
  EXPECT_THAT(after_clipping({.global_clipnorm = 1}),
              ElementsAre(near(3 - 0.6), near(4 - 0.8), near(0)));
}

// Infinity over infinity would be the factor.
TEST(ClippingTest, RefusesLimitsThatAreNegativeOrNotFinite) {
  for (const double limit : {-1.0, HUGE_VAL, std::nan("")})
    for (const auto& options :
         {GradientOptions{.clipvalue = limit}, GradientOptions{.clipnorm = limit},
          GradientOptions{.global_clipnorm = limit}})
      EXPECT_EQ(error_of([&] { SGD(1, {.gradients = options}); }),
                str("clipvalue, clipnorm and global_clipnorm must be finite and not negative, got ",
                    limit));
}

TEST(ClippingTest, TakesNormsWhoseSquaresAreBeyondTheGradientsType) {
  const Tensor gradient = Tensor::from<float>({3e30f, 1}, {2});
  for (const auto& options :
       {GradientOptions{.clipnorm = 0.7}, GradientOptions{.global_clipnorm = 0.7}}) {
    const auto weight = make_weight("w", Tensor::zeros(DType::kFloat32, {2}));
    testing::step_along_input(SGD(1, {.gradients = options}), weight)({gradient});
    expect_near(weight->value(), {-0.7, 0}, 1e-6);
  }
}

TEST(AccumulationTest, EqualsOneStepOnTheMeanGradient) {
  const auto small = make_weight("small", {1, 2}), big = make_weight("big", {1, 2});
  const Optimizer accumulating = Adam(0.1, {.gradients = {.accumulation_steps = 3}}),
                  plain = Adam(0.1);
  const Function micro = testing::step_along_input(accumulating, small),
                 full = testing::step_along_input(plain, big);
  for (int update = 0; update < 2; ++update) {
    const auto before = testing::to_vector(small->value());
    micro({testing::vector({1, 0})});
    micro({testing::vector({2, -3})});
    expect_near(small->value(), before);
    micro({testing::vector({6, 0})});
    full({testing::vector({3, -1})});
    expect_near(small->value(), testing::to_vector(big->value()));
  }
  EXPECT_EQ(accumulating.iterations()->value().item(), 6);
}

// Rows 1 and 2 of a table of ones after two steps with gradients of 1 a lookup: row 2 twice.
std::vector<double> after_lookups(const Optimizer& optimizer) {
  const auto table = make_weight("table", Tensor::full(DType::kFloat64, {4, 1}, 1));
  const Function step([&](const std::vector<Value>& in) {
    optimizer.minimize(ops::reduce_sum(ops::gather(table->read(), in[0])), {table});
    return std::vector<Value>{};
  });
  for (int i = 0; i < 2; ++i) step({Tensor::from<int32_t>({2, 1, 2}, {3})});
  return testing::to_vector(table->value());
}

TEST(SparseGradientTest, GivesTheDenseResult) {
  EXPECT_THAT(after_lookups(SGD(0.125)), ::testing::ElementsAre(1, 0.75, 0.5, 1));
  EXPECT_THAT(after_lookups(SGD(0.125, {.weight_decay = {.factor = 4}})),
              ::testing::ElementsAre(0.25, 0.0625, -0.125, 0.25));
  const double first = 0.1 / std::sqrt(1.1 + 1e-7), second = 0.1 / std::sqrt(2.1 + 1e-7);
  EXPECT_NEAR(after_lookups(Adagrad(0.1))[1], 1 - first - second, 1e-12);
}

TEST(OptimizerTest, SumsGradientsOverReplicas) {
  set_logical_cpus(2, 1);
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Optimizer adam = Adam(0.1);
  const Function step = testing::step_along_input(adam, weight);
  strategy.run(step, {{testing::vector({1})}, {testing::vector({3})}});
  const auto alone = make_weight("alone", {1});
  const Function same = testing::step_along_input(Adam(0.1), alone);
  strategy.run(same, {{testing::vector({4})}, {testing::vector({0})}});
  EXPECT_EQ(testing::to_vector(weight->value()), testing::to_vector(alone->value()));
  EXPECT_EQ(adam.iterations()->value().item(), 1);
}

}  // namespace
}  // namespace cohort::optim
