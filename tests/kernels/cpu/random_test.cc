#include <algorithm>
#include <utility>

#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

Attributes attributes(const TensorSpec& spec, double a, double b, int64_t seed) {
  return {
      {"shape", spec.shape.to_vector()}, {"dtype", spec.dtype}, {"a", a}, {"b", b}, {"seed", seed}};
}

Tensor draw(std::string_view op, const TensorSpec& spec, double a, double b,
            const RunOptions& options = {}, int64_t seed = 5) {
  return run_kernel(op, {}, {spec}, attributes(spec, a, b, seed), options)[0];
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, low = INFINITY, high = -INFINITY;
};

Moments moments(const Tensor& t) {
  Moments m;
  const auto values = to_doubles(t);
  const double n = static_cast<double>(values.size());
  for (double v : values) {
    m.mean += v / n;
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  for (double v : values) {
    m.variance += std::pow(v - m.mean, 2) / n;
    m.fourth += std::pow(v - m.mean, 4) / n;
  }
  return m;
}

constexpr const char* kOps[] = {"RandomUniform", "RandomNormal", "TruncatedNormal"};
const std::vector<DType> kFloats = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                    DType::kFloat16};

// The bounds are five standard errors of 200 thousand draws, and the rounding of 16-bit types.
TEST(Random, HasTheMomentsOfItsDistribution) {
  for (DType dtype : kFloats) {
    const TensorSpec spec{dtype, {200, 1000}};
    const double rounding = dtype == DType::kBFloat16 ? 4e-3 : 0;
    const Moments uniform = moments(draw("RandomUniform", spec, -1, 3));
    EXPECT_NEAR(uniform.mean, 1, 0.013 + rounding) << dtype;
    EXPECT_NEAR(uniform.variance, 16.0 / 12, 0.014 + rounding) << dtype;
    EXPECT_GE(uniform.low, -1);
    EXPECT_LT(uniform.high, 3);
    const Moments normal = moments(draw("RandomNormal", spec, 2, 0.5));
    EXPECT_NEAR(normal.mean, 2, 0.006 + rounding) << dtype;
    EXPECT_NEAR(normal.variance, 0.25, 0.004 + rounding) << dtype;
    EXPECT_NEAR(normal.fourth, 3 * 0.0625, 0.01 + rounding) << dtype;
    const Moments truncated = moments(draw("TruncatedNormal", spec, 0, 1));
    EXPECT_NEAR(truncated.mean, 0, 0.01 + rounding) << dtype;
    EXPECT_NEAR(truncated.variance, 0.7737, 0.01 + rounding) << dtype;
    EXPECT_GE(truncated.low, -2);
    EXPECT_LE(truncated.high, 2);
  }
}

// How many of 200 thousand uniform numbers are `value`, less what is expected of it, in standard
// deviations.
double surplus(DType dtype, double low, double high, double value, double probability) {
  const auto draws = to_doubles(draw("RandomUniform", {dtype, {200, 1000}}, low, high));
  const double n = static_cast<double>(draws.size());
  const auto found = static_cast<double>(std::ranges::count(draws, value));
  return (found - n * probability) / std::sqrt(n * probability * (1 - probability));
}

TEST(Random, WhatRoundsToTheEndOfARangeStaysNextToIt) {
  for (const auto& [dtype, bits] : {std::pair(DType::kBFloat16, 8), {DType::kFloat16, 11}}) {
    const double ulp = std::ldexp(1, -bits);  // below 1
    EXPECT_LT(surplus(dtype, 0, 1, 0, ulp / 1000), 5) << dtype;
    EXPECT_LT(std::abs(surplus(dtype, 0, 1, 1 - ulp, 1.5 * ulp)), 5) << dtype;
    EXPECT_LT(std::abs(surplus(dtype, -2, -1, -2, ulp)), 5) << dtype;
    EXPECT_LT(std::abs(surplus(dtype, -2, -1, -1 - 2 * ulp, 3 * ulp)), 5) << dtype;
    EXPECT_LT(moments(draw("RandomUniform", {dtype, {200, 1000}}, -2, -1)).high, -1) << dtype;
  }
}

TEST(Random, DependsOnSeedStepAndReplicaButNotOnThreads) {
  for (const char* op : kOps)
    for (DType dtype : kFloats) {
      const TensorSpec spec{dtype, {3, 7001}};
      const Tensor one = draw(op, spec, 0, 1);
      for (int threads : {2, 3}) expect_same_bytes(one, draw(op, spec, 0, 1, {threads}), op);
      const auto differs = [&](const Tensor& other) {
        const auto a = to_doubles(one), b = to_doubles(other);
        int64_t same = 0;
        for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
        EXPECT_LT(same, one.num_elements() / 20) << op << " " << dtype;
      };
      differs(draw(op, spec, 0, 1, {.step = {.seed = 1}}));
      differs(draw(op, spec, 0, 1, {.step = {.step = 1}}));
      differs(draw(op, spec, 0, 1, {.step = {.replica_id = 1}}));
      differs(draw(op, spec, 0, 1, {}, 6));
    }
}

TEST(Random, SmallAndEmptyTensorsAndDegenerateRanges) {
  const struct {
    const char* op;
    double low, high;  // beyond which no number of 24 random bits comes
  } ranges[] = {{"RandomUniform", 0, 1}, {"RandomNormal", -6, 6}, {"TruncatedNormal", -2, 2}};
  for (const auto& [op, low, high] : ranges)
    for (int64_t n : {0, 1, 2, 3, 5}) {
      const auto values = to_doubles(draw(op, {DType::kFloat32, {n}}, 0, 1));
      EXPECT_EQ(values.size(), static_cast<size_t>(n)) << op;
      for (const double value : values) {
        EXPECT_GE(value, low) << op << " of " << n;
        EXPECT_LE(value, high) << op << " of " << n;
      }
    }
  EXPECT_EQ(draw("RandomUniform", {DType::kFloat32, {}}, 4, 4).item(), 4);
  EXPECT_EQ(draw("RandomNormal", {DType::kFloat64, {}}, 4, 0).item(), 4);
}

Tensor dropout(const Tensor& x, double rate, const RunOptions& options = {}) {
  return run_kernel("Dropout", {x}, {x.spec()}, {{"rate", rate}, {"seed", int64_t{3}}}, options)[0];
}

TEST(Dropout, KeepsTheExpectedShareAndScalesIt) {
  for (DType dtype : kFloats)
    for (double rate : {0.0, 0.1, 0.5, 0.9}) {
      const Tensor x = Tensor::full(dtype, {40, 2501}, 1);
      const auto y = to_doubles(dropout(x, rate));
      double kept = 0;
      for (double v : y) {
        if (v == 0) continue;
        ++kept;
        ASSERT_NEAR(v, 1 / (1 - rate), tolerance(dtype) / (1 - rate));
      }
      const double n = static_cast<double>(y.size());
      EXPECT_NEAR(kept / n, 1 - rate, 5 * std::sqrt(rate * (1 - rate) / n)) << dtype;
    }
}

TEST(Dropout, MaskDependsOnPositionSeedAndStepOnly) {
  const Tensor x = random_tensor(DType::kFloat32, {12345}, 1, 2),
               dy = random_tensor(DType::kFloat32, {12345}, 1, 2, 9);
  const Tensor y = dropout(x, 0.4);
  for (int threads : {2, 3}) expect_same_bytes(y, dropout(x, 0.4, {threads, {}, true}), "threads");
  expect_same_bytes(y, dropout(x, 0.4, {.in_place_output = 0, .in_place_input = 0}), "in place");
  const Tensor gradient = dropout(dy, 0.4), next = dropout(x, 0.4, {.step = {.step = 1}});
  int64_t changed = 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    ASSERT_EQ(y.data<float>()[i] == 0, gradient.data<float>()[i] == 0) << i;
    changed += (y.data<float>()[i] == 0) != (next.data<float>()[i] == 0);
  }
  EXPECT_GT(changed, x.num_elements() / 3);
  EXPECT_EQ(dropout(Tensor::zeros(DType::kFloat32, {0}), 0.5).num_elements(), 0);
}

}  // namespace
}  // namespace cohort::testing
