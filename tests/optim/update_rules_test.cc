#include <cmath>

#include "tests/optim/testing.h"

// Every rule against Keras' formulas, written out for one number in float64.
namespace cohort::optim {
namespace {

const std::vector<double> kGradients = {0.5, -1.25, 2, 0.125, -0.75};

// Applies the gradients to a weight of 2, with the optimizer and with `reference`(w, g, t), t
// from 1.
void expect_follows(const Optimizer& optimizer,
                    const std::function<double(double w, double g, int t)>& reference) {
  const auto weight = testing::make_weight("w", {2});
  const Function step = testing::step_along_input(optimizer, weight);
  double w = 2;
  for (size_t i = 0; i < kGradients.size(); ++i) {
    step({testing::vector({kGradients[i]})});
    w = reference(w, kGradients[i], static_cast<int>(i) + 1);
    ASSERT_NEAR(weight->value().item(), w, 1e-12) << "step " << i;
  }
}

TEST(SgdTest, FollowsTheGradient) {
  expect_follows(SGD(0.1), [](double w, double g, int) { return w - 0.1 * g; });
}

TEST(SgdTest, KeepsMomentum) {
  double m = 0;
  expect_follows(SGD(0.1, {.momentum = 0.9}),
                 [&](double w, double g, int) { return w + (m = 0.9 * m - 0.1 * g); });
}

TEST(SgdTest, LooksAheadWithNesterov) {
  double m = 0;
  expect_follows(SGD(0.1, {.momentum = 0.9, .nesterov = true}), [&](double w, double g, int) {
    m = 0.9 * m - 0.1 * g;
    return w + 0.9 * m - 0.1 * g;
  });
}

TEST(SgdTest, DecaysWeights) {
  expect_follows(SGD(0.1, {.weight_decay = {.factor = 0.05}}),
                 [](double w, double g, int) { return w - w * 0.05 * 0.1 - 0.1 * g; });
}

// Adam's moments.
struct Moments {
  double m = 0, v = 0;
  void move(double g) {
    m += (g - m) * (1 - 0.9);
    v += (g * g - v) * (1 - 0.999);
  }
};

double adam_rate(int t) {
  return 0.01 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
}

TEST(AdamTest, FollowsKeras) {
  Moments s;
  expect_follows(Adam(0.01), [&](double w, double g, int t) {
    s.move(g);
    return w - adam_rate(t) * s.m / (std::sqrt(s.v) + 1e-7);
  });
}

TEST(AdamTest, KeepsTheLargestVelocityWithAmsgrad) {
  Moments s;
  double largest = 0;
  expect_follows(Adam(0.01, {.amsgrad = true}), [&](double w, double g, int t) {
    s.move(g);
    largest = std::max(largest, s.v);
    return w - adam_rate(t) * s.m / (std::sqrt(largest) + 1e-7);
  });
}

TEST(AdamWTest, DecaysWeightsApartFromTheGradient) {
  Moments s;
  expect_follows(AdamW(0.01), [&](double w, double g, int t) {
    s.move(g);
    return w - w * 0.004 * 0.01 - adam_rate(t) * s.m / (std::sqrt(s.v) + 1e-7);
  });
}

TEST(AdamWTest, DecaysNothingByAFactorOfZero) {
  Moments s;
  expect_follows(AdamW(0.01, {.weight_decay = {.factor = 0}}), [&](double w, double g, int t) {
    s.move(g);
    return w - adam_rate(t) * s.m / (std::sqrt(s.v) + 1e-7);
  });
}

TEST(LambTest, ScalesByTheTrustRatio) {
  Moments s;
  expect_follows(Lamb(0.01), [&](double w, double g, int t) {
    s.move(g);
    const double r =
        s.m / (1 - std::pow(0.9, t)) / (std::sqrt(s.v / (1 - std::pow(0.999, t))) + 1e-7);
    return w - 0.01 * r * std::abs(w) / std::abs(r);
  });
}

TEST(LambTest, TakesTheRatioOfTheNormsOfAWholeVariable) {
  const auto weight = testing::make_weight("w", {3, -4});
  const Function step = testing::step_along_input(Lamb(0.01), weight);
  const std::vector<std::vector<double>> gradients = {{0.5, -2}, {-1.25, 0.125}, {2, 0}};
  std::vector<double> w = {3, -4}, r(2);
  std::vector<Moments> s(2);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<double>& g = gradients[static_cast<size_t>(t) - 1];
    for (size_t i = 0; i < 2; ++i) {
      s[i].move(g[i]);
      r[i] =
          s[i].m / (1 - std::pow(0.9, t)) / (std::sqrt(s[i].v / (1 - std::pow(0.999, t))) + 1e-7);
    }
    const double ratio = std::hypot(w[0], w[1]) / std::hypot(r[0], r[1]);
    for (size_t i = 0; i < 2; ++i) w[i] -= 0.01 * ratio * r[i];
    step({testing::vector(g)});
    testing::expect_near(weight->value(), w);
    // Of the first update, whatever the gradient, r is (1, -1), and the ratio 5 to the root of 2.
    if (t == 1) testing::expect_near(weight->value(), {2.9646446609, -3.9646446609}, 1e-7);
  }
}

TEST(LambTest, TakesOneForTheRatioWhereANormIsZero) {
  const auto updated = [](std::vector<double> from, std::vector<double> gradient) {
    const auto weight = testing::make_weight("w", std::move(from));
    testing::step_along_input(Lamb(0.01), weight)({testing::vector(std::move(gradient))});
    return weight->value();
  };
  testing::expect_near(updated({0, 0}, {0.5, -2}), {-0.01, 0.01}, 1e-8);
  testing::expect_near(updated({3, -4}, {0, 0}), {3, -4});
}

TEST(RmspropTest, FollowsKeras) {
  double v = 0;
  expect_follows(RMSprop(0.01), [&](double w, double g, int) {
    v = 0.9 * v + 0.1 * g * g;
    return w - 0.01 * g / std::sqrt(v + 1e-7);
  });
}

TEST(RmspropTest, ForgetsAsQuicklyAsAsked) {
  double v = 0;
  expect_follows(RMSprop(0.01, {.rho = 0.5}), [&](double w, double g, int) {
    v = 0.5 * v + 0.5 * g * g;
    return w - 0.01 * g / std::sqrt(v + 1e-7);
  });
}

TEST(RmspropTest, CentresAndKeepsMomentum) {
  double v = 0, a = 0, m = 0;
  expect_follows(RMSprop(0.01, {.momentum = 0.5, .centered = true}), [&](double w, double g, int) {
    v = 0.9 * v + 0.1 * g * g;
    a = 0.9 * a + 0.1 * g;
    m = 0.5 * m + 0.01 * g / std::sqrt(v - a * a + 1e-7);
    return w - m;
  });
}

TEST(RmspropTest, StaysFiniteWhereGradientsDoNotVary) {
  constexpr int64_t kGradients = 1000;
  Tensor gradients(DType::kFloat32, {kGradients});
  for (int64_t i = 0; i < kGradients; ++i)
    gradients.data<float>()[i] = 1 + 0.01f * static_cast<float>(i);
  const auto weight = testing::make_weight("w", Tensor::zeros(DType::kFloat32, gradients.shape()));
  const Function step = testing::step_along_input(RMSprop(0.01, {.centered = true}), weight);
  for (int i = 0; i < 200; ++i) step({gradients});
  for (const double w : testing::to_vector(weight->value())) ASSERT_TRUE(std::isfinite(w));
}

TEST(AdagradTest, FollowsKeras) {
  double a = 0.1;
  expect_follows(Adagrad(0.1), [&](double w, double g, int) {
    a += g * g;
    return w - 0.1 * g / std::sqrt(a + 1e-7);
  });
}

TEST(OptimizersTest, RefuseArgumentsOutOfRange) {
  using testing::error_of;
  EXPECT_EQ(error_of([] { SGD(-1); }), "the learning rate must be finite and not negative, got -1");
  EXPECT_EQ(error_of([] { Adam(HUGE_VAL); }),
            "the learning rate must be finite and not negative, got inf");
  EXPECT_EQ(error_of([] { SGD(0.1).set_learning_rate(std::nan("")); }),
            "the learning rate must be finite and not negative, got nan");
  EXPECT_EQ(error_of([] { SGD(Schedule()); }), "the schedule of a learning rate is empty");
  EXPECT_EQ(error_of([] { SGD(1, {.momentum = 2}); }), "SGD: momentum must be in [0, 1], got 2");
  EXPECT_EQ(error_of([] { Adam(1, {.beta_2 = 1}); }), "Adam: beta_2 must be in [0, 1), got 1");
  EXPECT_EQ(error_of([] { SGD(1, {.weight_decay = {.factor = -1}}); }),
            "weight_decay: the factor must be finite and not negative, got -1");
  EXPECT_EQ(error_of([] { AdamW(1, {.weight_decay = {.factor = std::nan("")}}); }),
            "weight_decay: the factor must be finite and not negative, got nan");
  EXPECT_EQ(error_of([] { Adam(1, {.epsilon = HUGE_VAL}); }),
            "Adam: epsilon must be finite and not negative, got inf");
  EXPECT_EQ(error_of([] { Optimizer(nullptr, {}); }), "the rule of an optimizer is null");
  EXPECT_EQ(error_of([] { SGD(1, {.gradients = {.clipvalue = 1, .clipnorm = 1}}); }),
            "only one of clipvalue, clipnorm and global_clipnorm may be set");
}

}  // namespace
}  // namespace cohort::optim
