// Variables of one optimizer with learning rates and weight decay of their own.
#include <cmath>

#include "core/ops/array_ops.h"
#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

using testing::error_of;
using testing::expect_near;
using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

using Groups = std::vector<VariableGroup>;

// The new value of a weight, by a formula that keeps its state: t counts from 1.
using Reference = std::function<double(double w, double g, double rate, int t)>;

constexpr double kRate = 0.05;

struct Case {
  std::string name;
  std::function<Optimizer(const WeightDecay& decay, const Groups& groups)> make;
  std::function<Reference()> reference;
};

std::vector<Case> cases() {
  return {{"SGD",
           [](auto& decay, auto& groups) {
             return SGD(kRate, {.momentum = 0.9, .weight_decay = decay, .groups = groups});
           },
           [] {
             return [m = 0.0](double w, double g, double rate, int) mutable {
               return w + (m = 0.9 * m - rate * g);
             };
           }},
          {"AdamW",
           [](auto& decay, auto& groups) {
             return AdamW(kRate, {.weight_decay = decay, .groups = groups});
           },
           [] {
             return [m = 0.0, v = 0.0](double w, double g, double rate, int t) mutable {
               m += (g - m) * (1 - 0.9);
               v += (g * g - v) * (1 - 0.999);
               return w - rate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m /
                              (std::sqrt(v) + 1e-7);
             };
           }},
          {"RMSprop",
           [](auto& decay, auto& groups) {
             return RMSprop(kRate, {.weight_decay = decay, .groups = groups});
           },
           [] {
             return [v = 0.0](double w, double g, double rate, int) mutable {
               v = 0.9 * v + 0.1 * g * g;
               return w - rate * g / std::sqrt(v + 1e-7);
             };
           }},
          {"Adagrad",
           [](auto& decay, auto& groups) {
             return Adagrad(kRate, {.weight_decay = decay, .groups = groups});
           },
           [] {
             return [a = 0.1](double w, double g, double rate, int) mutable {
               a += g * g;
               return w - rate * g / std::sqrt(a + 1e-7);
             };
           }},
          {"Lamb",
           [](auto& decay, auto& groups) {
             return Lamb(kRate, {.weight_decay = decay, .groups = groups});
           },
           [] {
             return [m = 0.0, v = 0.0](double w, double g, double rate, int t) mutable {
               m += (g - m) * (1 - 0.9);
               v += (g * g - v) * (1 - 0.999);
               const double r =
                   m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-7);
               return w - rate * r * std::abs(w) / std::abs(r);
             };
           }}};
}

// A step whose gradients are its inputs, one for each weight.
Function step_along_inputs(const Optimizer& optimizer, const std::vector<VariablePtr>& weights) {
  return Function([=](const std::vector<Value>& in) {
    Value loss = ops::constant(0, DType::kFloat64);
    for (size_t i = 0; i < weights.size(); ++i)
      loss = loss + ops::reduce_sum(weights[i]->read() * in[i]);
    optimizer.minimize(loss, weights);
    return std::vector<Value>{};
  });
}

class VariableGroupsTest : public testing::ReplicasTest {
 protected:
  PerReplica<std::vector<Tensor>> on_each(const std::vector<Tensor>& inputs) const {
    return std::vector<std::vector<Tensor>>(static_cast<size_t>(replicas()), inputs);
  }
  // One of step_along_inputs(): every replica has an equal share of each gradient.
  void run(const Function& step, const std::vector<double>& gradients) {
    std::vector<Tensor> shares;
    for (const double gradient : gradients)
      shares.push_back(testing::vector({gradient / replicas()}));
    strategy.run(step, on_each(shares));
  }
};
COHORT_FOR_ALL_REPLICAS(VariableGroupsTest);

TEST_P(VariableGroupsTest, HaveRatesAndDecayOfTheirOwn) {
  const auto scope = strategy.scope();
  const WeightDecay decay = {.factor = 0.1, .exclude = {"bias"}};
  const Groups groups = {
      {.variables = {"backbone", "embedding"}, .learning_rate_multiplier = 0.25},
      {.variables = {"kernel"}, .weight_decay = 0.5},
      {.variables = {"gamma"}, .learning_rate_multiplier = 3, .weight_decay = 0}};
  struct Expected {
    std::string name;
    double multiplier, decay;
  };
  const std::vector<Expected> all = {{"backbone/kernel", 0.25, 0.1},
                                     {"backbone/bias", 0.25, 0},
                                     {"embedding_1/table", 0.25, 0.1},
                                     {"head/kernel", 1, 0.5},
                                     {"head/bias", 1, 0},
                                     {"norm/gamma", 3, 0},
                                     {"other", 1, 0.1}};
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    std::vector<VariablePtr> weights;
    std::vector<Reference> references;
    for (const Expected& each : all) {
      weights.push_back(make_weight(each.name, {2}));
      references.push_back(c.reference());
    }
    const Function step = step_along_inputs(c.make(decay, groups), weights);
    std::vector<double> w(all.size(), 2), gradients(all.size());
    for (int t = 1; t <= 3; ++t) {
      for (size_t i = 0; i < all.size(); ++i) {
        const double rate = kRate * all[i].multiplier;
        gradients[i] = std::sin(7.0 * t + static_cast<double>(i));
        w[i] = references[i](w[i] - w[i] * rate * all[i].decay, gradients[i], rate, t);
      }
      run(step, gradients);
      for (size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(str(all[i].name, " after step ", t));
        expect_near(weights[i]->value(), {w[i]});
      }
    }
  }
}

TEST_P(VariableGroupsTest, GoWithSchedulesAndWithWhatBecomesOfGradients) {
  const auto scope = strategy.scope();
  const auto falling_from = [](double rate) {
    return Schedule([rate](const Value& step) { return rate / (1.0 + step); });
  };
  for (const GradientOptions& gradients :
       {GradientOptions{}, GradientOptions{.clipvalue = 0.5}, GradientOptions{.clipnorm = 0.5},
        GradientOptions{.accumulation_steps = 2},
        GradientOptions{.loss_scale = LossScale{.initial_scale = 8}}}) {
    const VariablePtr in_group = make_weight("a", {2}), other = make_weight("b", {2}),
                      alone = make_weight("a", {2});
    const Function together = step_along_inputs(
                       SGD(falling_from(0.5), {.momentum = 0.5,
                                               .groups = {{.variables = {"a"},
                                                           .learning_rate_multiplier = 0.25,
                                                           .weight_decay = 0.5}},
                                               .gradients = gradients}),
                       {in_group, other}),
                   apart =
                       step_along_inputs(SGD(falling_from(0.125), {.momentum = 0.5,
                                                                   .weight_decay = {.factor = 0.5},
                                                                   .gradients = gradients}),
                                         {alone});
    for (const double gradient : {1.0, -0.25, 2.0, 0.5}) {
      run(together, {gradient, 1});
      run(apart, {gradient});
      expect_near(in_group->value(), to_vector(alone->value()));
    }
  }
}

TEST_P(VariableGroupsTest, MultiplyWhatIsClippedTogether) {
  const auto scope = strategy.scope();
  const VariablePtr a = make_weight("a", {1}), b = make_weight("b", {1});
  const Optimizer sgd = SGD(1, {.groups = {{.variables = {"a"}, .learning_rate_multiplier = 0.5}},
                                .gradients = {.global_clipnorm = 1}});
  run(step_along_inputs(sgd, {a, b}), {3, 4});
  expect_near(a->value(), {1 - 0.5 * 0.6});
  expect_near(b->value(), {1 - 0.8});
  EXPECT_EQ(sgd.learning_rate(), 1);
}

// Decay of others does not make the gradient dense, which would decay all rows.
TEST_P(VariableGroupsTest, MoveTheRowsOfASparseGradient) {
  const auto scope = strategy.scope();
  const VariablePtr table = make_weight("table", Tensor::full(DType::kFloat64, {3, 1}, 1)),
                    other = make_weight("other", {1});
  const Optimizer sgd = SGD(
      0.5,
      {.weight_decay = {.factor = 0.5},
       .groups = {{.variables = {"table"}, .learning_rate_multiplier = 0.25, .weight_decay = 0}}});
  const Function step([&](const std::vector<Value>& in) {
    const Value rows = ops::gather(table->read(), in[0]);
    const Value loss = ops::reduce_sum(rows) + ops::reduce_sum(other->read());
    sgd.minimize(loss / replicas(), {table, other});
    return std::vector<Value>{};
  });
  strategy.run(step, on_each({Tensor::from<int32_t>({2, 1, 2}, {3})}));
  expect_near(table->value(), {1, 0.875, 0.75});
  expect_near(other->value(), {0.25});
}

TEST(VariableGroups, NameVariablesThatThereAre) {
  const VariablePtr kernel = make_weight("dense/kernel", {1}),
                    bias = make_weight("dense/bias", {1});
  const Optimizer misspelt = SGD(1, {.groups = {{.variables = {"bias", "dens"}}}});
  const std::string said =
      "groups: \"dens\" is no whole part of the name of any variable that the optimizer is given "
      "first: \"dense/kernel\", \"dense/bias\"";
  const auto step = [&](const Optimizer& optimizer, const std::vector<VariablePtr>& weights) {
    step_along_inputs(optimizer,
                      weights)(std::vector<Tensor>(weights.size(), testing::vector({1})));
  };
  EXPECT_EQ(error_of([&] { misspelt.build({kernel, bias}); }), said);
  EXPECT_EQ(error_of([&] { step(misspelt, {kernel, bias}); }), said);
  expect_near(kernel->value(), {1});
  // One step may be of some variables, once the others are known.
  const Optimizer of_biases =
      SGD(0.5, {.groups = {{.variables = {"bias"}, .learning_rate_multiplier = 0.5}}});
  of_biases.build({kernel, bias});
  step(of_biases, {kernel});
  step(of_biases, {bias});
  expect_near(kernel->value(), {0.5});
  expect_near(bias->value(), {0.75});
}

// A checkpoint fits whatever groups there are.
TEST(VariableGroups, AreNoState) {
  const auto names = [](const Groups& groups) {
    const Optimizer adam = Adam(0.1, {.groups = groups});
    adam.build({make_weight("kernel", {1}), make_weight("bias", {1})});
    std::vector<std::string> all;
    for (const VariablePtr& variable : adam.variables()) all.push_back(variable->name());
    return all;
  };
  EXPECT_EQ(names({{.variables = {"bias"}, .learning_rate_multiplier = 0.1}}), names({}));
}

TEST(VariableGroups, RefuseNumbersOutOfRange) {
  const auto refused = [](const VariableGroup& group) {
    return error_of([&] { SGD(1, {.groups = {group}}); });
  };
  for (const double number : {-1.0, HUGE_VAL, std::nan("")}) {
    const std::string range = str(" must be finite and not negative, got ", number);
    EXPECT_EQ(refused({.variables = {"w"}, .learning_rate_multiplier = number}),
              "groups: learning_rate_multiplier" + range);
    EXPECT_EQ(refused({.variables = {"w"}, .weight_decay = number}),
              "groups: weight_decay" + range);
  }
  EXPECT_EQ(refused({}), "groups: a group names no variables");
}

}  // namespace
}  // namespace cohort::optim
