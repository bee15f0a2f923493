#include "core/optim/schedules.h"

#include <cmath>
#include <numbers>

#include "tests/optim/testing.h"

namespace cohort::optim {
namespace {

using testing::error_of;

double at(const Schedule& schedule, double step) {
  const Function f(
      [&](const std::vector<Value>& in) { return std::vector<Value>{schedule(in[0])}; });
  return f(std::vector<Tensor>{Tensor::scalar(step)})[0].item();
}

TEST(SchedulesTest, StepThroughConstants) {
  const Schedule s = schedules::PiecewiseConstantDecay({10, 20}, {1, 0.5, 0.1});
  EXPECT_EQ(at(s, 0), 1);
  EXPECT_EQ(at(s, 10), 1);
  EXPECT_EQ(at(s, 11), 0.5);
  EXPECT_EQ(at(s, 21), 0.1);
}

TEST(SchedulesTest, DecayExponentially) {
  EXPECT_NEAR(at(schedules::ExponentialDecay(0.1, 100, 0.5), 150), 0.1 * std::pow(0.5, 1.5), 1e-12);
  EXPECT_NEAR(at(schedules::ExponentialDecay(0.1, 100, 0.5, true), 150), 0.05, 1e-12);
}

TEST(SchedulesTest, DecayAlongACosineAfterWarmingUp) {
  const Schedule plain = schedules::CosineDecay(0.1, 100, {.alpha = 0.1});
  EXPECT_NEAR(at(plain, 0), 0.1, 1e-12);
  EXPECT_NEAR(at(plain, 25), 0.1 * (0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 4)) + 0.1), 1e-12);
  EXPECT_NEAR(at(plain, 500), 0.01, 1e-12);
  const Schedule warm = schedules::CosineDecay(0, 100, {.warmup_target = 0.2, .warmup_steps = 10});
  EXPECT_NEAR(at(warm, 5), 0.1, 1e-12);
  EXPECT_NEAR(at(warm, 10), 0.2, 1e-12);
  EXPECT_NEAR(at(warm, 60), 0.1, 1e-12);
  const Schedule at_once = schedules::CosineDecay(0.1, 100, {.warmup_target = 0.2});
  EXPECT_NEAR(at(at_once, 0), 0.2, 1e-12);
  EXPECT_NEAR(at(at_once, 50), 0.1, 1e-12);
}

TEST(SchedulesTest, DecayAlongAPolynomial) {
  const Schedule s = schedules::PolynomialDecay(0.1, 100, {.end = 0.01, .power = 2});
  EXPECT_NEAR(at(s, 50), 0.09 * 0.25 + 0.01, 1e-12);
  EXPECT_NEAR(at(s, 200), 0.01, 1e-12);
  const Schedule cycle = schedules::PolynomialDecay(0.1, 100, {.end = 0, .cycle = true});
  EXPECT_NEAR(at(cycle, 0), 0.1, 1e-12);
  EXPECT_NEAR(at(cycle, 150), 0.025, 1e-12);
  // At the end of a cycle a fraction of the step may be rounded to more than 1.
  for (const auto& [steps, step] : {std::pair(3 / 1.1, 30.0), std::pair(6 / 1.1, 60.0)})
    EXPECT_NEAR(
        at(schedules::PolynomialDecay(0.1, steps, {.end = 0.01, .power = 0.5, .cycle = true}),
           step),
        0.01, 1e-8);
}

TEST(SchedulesTest, RefuseArgumentsOutOfRange) {
  EXPECT_EQ(error_of([] {
              schedules::PiecewiseConstantDecay({1, 2}, {1});
            }),
            "PiecewiseConstantDecay: 2 boundaries need 3 values, got 1");
  for (const std::vector<double>& boundaries : {std::vector{2.0, 1.0}, std::vector{1.0, 1.0}})
    EXPECT_EQ(error_of([&] {
                schedules::PiecewiseConstantDecay(boundaries, {1, 1, 1});
              }),
              "PiecewiseConstantDecay: the boundaries must rise");
  EXPECT_EQ(error_of([] {
              schedules::PiecewiseConstantDecay({std::nan("")}, {1, 1});
            }),
            "PiecewiseConstantDecay: the boundaries must rise");
  EXPECT_EQ(error_of([] { schedules::CosineDecay(1, 0); }),
            "CosineDecay: decay_steps must be finite and positive, got 0");
  EXPECT_EQ(error_of([] { schedules::CosineDecay(0.1, 1000, {.warmup_steps = 100}); }),
            "CosineDecay: 100 warmup_steps need a warmup_target, the rate to reach in them");
  for (const double alpha : {-2.0, 1.5, std::nan("")})
    EXPECT_EQ(error_of([&] { schedules::CosineDecay(0.1, 10, {.alpha = alpha}); }),
              str("CosineDecay: alpha must be in [0, 1], got ", alpha));
}

TEST(SchedulesTest, RefuseRatesThatAreNone) {
  for (const double rate : {-0.1, std::nan(""), HUGE_VAL}) {
    const std::string said = str(" must be finite and not negative, got ", rate);
    EXPECT_EQ(error_of([&] {
                schedules::PiecewiseConstantDecay({1}, {0.1, rate});
              }),
              "PiecewiseConstantDecay: each value" + said);
    EXPECT_EQ(error_of([&] { schedules::ExponentialDecay(rate, 10, 0.5); }),
              "ExponentialDecay: initial" + said);
    EXPECT_EQ(error_of([&] { schedules::CosineDecay(rate, 10); }), "CosineDecay: initial" + said);
    EXPECT_EQ(error_of([&] {
                schedules::CosineDecay(0.1, 10, {.warmup_target = rate, .warmup_steps = 1});
              }),
              "CosineDecay: warmup_target" + said);
    EXPECT_EQ(error_of([&] { schedules::PolynomialDecay(rate, 10); }),
              "PolynomialDecay: initial" + said);
    EXPECT_EQ(error_of([&] { schedules::PolynomialDecay(0.1, 10, {.end = rate}); }),
              "PolynomialDecay: end" + said);
  }
}

}  // namespace
}  // namespace cohort::optim
