#include "core/nn/constraints.h"

#include <cmath>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "tests/distribute/testing.h"
#include "tests/nn/testing.h"

namespace cohort::constraints {
namespace {

using testing::error_of;
using testing::expect_near;

Tensor constrained(const Constraint& constraint, const Tensor& weight) {
  const Function f(
      [&](const std::vector<Value>& in) { return std::vector<Value>{constraint(in[0])}; });
  return f({weight})[0];
}

// Columns of norm 5, 0 and 0.5; rows of other norms.
const Tensor kWeight = Tensor::from<float>({3, 0, 0.3f, -4, 0, -0.4f}, {2, 3});

TEST(ConstraintsTest, FollowKeras) {
  expect_near(constrained(non_neg(), kWeight), {3, 0, 0.3, 0, 0, 0});
  expect_near(constrained(max_norm(), kWeight), {1.2, 0, 0.3, -1.6, 0, -0.4});
  expect_near(constrained(max_norm(4, {1}), kWeight),
              {3, 0, 0.3, -4 * 4 / std::sqrt(16.16), 0, -0.4 * 4 / std::sqrt(16.16)});
  expect_near(constrained(unit_norm(), kWeight), {0.6, 0, 0.6, -0.8, 0, -0.8});
  expect_near(constrained(min_max_norm({.min_value = 1, .max_value = 2}), kWeight),
              {1.2, 0, 0.6, -1.6, 0, -0.8});
  expect_near(constrained(min_max_norm({.min_value = 1, .max_value = 3, .rate = 0.5}), kWeight),
              {2.4, 0, 0.45, -3.2, 0, -0.6});
  expect_near(constrained(max_norm(1, {0, 1}), Tensor::full(DType::kFloat32, {2, 2}, 1)),
              {0.5, 0.5, 0.5, 0.5});
}

TEST(ConstraintsTest, RefuseNumbersOutOfRange) {
  EXPECT_EQ(error_of([] { max_norm(-1); }),
            "max_norm: a norm must be finite and not negative, got -1");
  EXPECT_EQ(error_of([] { min_max_norm({.min_value = 2}); }),
            "min_max_norm: min_value 2 is above max_value 1");
  EXPECT_EQ(error_of([] { min_max_norm({.rate = 0}); }),
            "min_max_norm: the rate must be in (0, 1], got 0");
}

class ConstraintReplicasTest : public testing::ReplicasTest {
 protected:
  // A weight after a step of plain SGD at a rate of 1 along the gradient of `loss`, of which each
  // replica has an equal share.
  Tensor after_step(const Tensor& initial, const Constraint& constraint,
                    const std::function<Value(const Value&)>& loss) {
    const auto scope = strategy.scope();
    const auto weight = create_variable({.name = "w",
                                         .spec = initial.spec(),
                                         .initial_value = [&] { return initial.clone(); },
                                         .constraint = constraint});
    const auto sgd = optim::SGD(1);
    const auto step = strategy.function([&](Value unused) {
      const Value share = loss(weight->read()) / static_cast<double>(replicas());
      sgd.minimize(share, {weight});
      return unused;
    });
    strategy.run(step, Tensor::scalar(0.0f));
    return weight->value();
  }
};
COHORT_FOR_ALL_REPLICAS(ConstraintReplicasTest);

TEST_P(ConstraintReplicasTest, HoldAfterAnUpdate) {
  const auto slope = [](std::vector<float> values) {
    return [values](const Value& w) {
      return ops::reduce_sum(w * ops::constant(Tensor::from(values, w.shape())));
    };
  };
  // 4, 0, -3, 1 is moved to 3, 0, -4, 1.
  const Tensor initial = Tensor::from<float>({4, 0, -3, 1}, {2, 2});
  expect_near(after_step(initial, {}, slope({1, 0, 1, 0})), {3, 0, -4, 1});
  expect_near(after_step(initial, max_norm(2.5), slope({1, 0, 1, 0})), {1.5, 0, -2, 1});
  expect_near(after_step(initial, non_neg(), slope({1, 0, 1, 0})), {3, 0, 0, 1});
}

TEST_P(ConstraintReplicasTest, HoldForRowsThatASparseGradientDoesNotName) {
  const auto second = [](const Value& w) {
    return ops::reduce_sum(ops::gather(w, ops::constant(Tensor::from<int32_t>({1}, {1}))));
  };
  expect_near(after_step(Tensor::from<float>({-1, 3}, {2, 1}), non_neg(), second), {0, 2});
}

TEST(ConstraintsTest, AreOptionsOfLayers) {
  const nn::Layer dense = nn::Dense(1, {.kernel_initializer = initializers::constant(-1),
                                        .bias_initializer = initializers::constant(-1),
                                        .kernel_constraint = non_neg(),
                                        .bias_constraint = unit_norm()});
  const nn::Layer conv = nn::Conv2D(1, 1, {.kernel_constraint = non_neg()});
  dense.build({{DType::kFloat32, {1, 2}}});
  conv.build({{DType::kFloat32, {1, 2, 2, 1}}});
  EXPECT_TRUE(conv.variables()[0]->constraint());
  EXPECT_FALSE(conv.variables()[1]->constraint());
  const auto sgd = optim::SGD(0.5);
  const Function step([&](const std::vector<Value>& in) {
    sgd.minimize(ops::reduce_sum(dense(in[0])), dense.trainable_variables());
    return std::vector<Value>{};
  });
  step({Tensor::zeros(DType::kFloat32, {1, 2})});
  expect_near(testing::weight(dense, "kernel"), {0, 0});
  expect_near(testing::weight(dense, "bias"), {-1});
}

}  // namespace
}  // namespace cohort::constraints
