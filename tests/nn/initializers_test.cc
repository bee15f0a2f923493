#include "core/nn/initializers.h"

#include <cmath>

#include "core/base/threads.h"
#include "tests/nn/testing.h"

namespace cohort::initializers {
namespace {

using testing::kSeed;
using testing::to_vector;

struct Statistics {
  double mean = 0, variance = 0, low = 1e9, high = -1e9;
};

Statistics statistics(const Initializer& initializer, const Shape& shape) {
  const auto values = to_vector(initializer({DType::kFloat32, shape}, kSeed));
  Statistics s;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) {
    s.mean += v / n;
    s.low = std::min(s.low, v);
    s.high = std::max(s.high, v);
  }
  for (const double v : values) s.variance += (v - s.mean) * (v - s.mean) / n;
  return s;
}

TEST(InitializersTest, FillWithConstants) {
  EXPECT_EQ(to_vector(zeros()({DType::kFloat32, {2}}, 1)), (std::vector<double>{0, 0}));
  EXPECT_EQ(to_vector(ones()({DType::kFloat32, {2}}, 1)), (std::vector<double>{1, 1}));
  EXPECT_EQ(to_vector(constant(3)({DType::kFloat64, {1}}, 1)), (std::vector<double>{3}));
}

TEST(InitializersTest, HaveTheVarianceOfTheirFans) {
  const Shape kernel{3, 3, 20, 40};  // fan in 180, fan out 360
  const struct {
    Initializer initializer;
    double variance;
  } cases[] = {{glorot_uniform(), 2.0 / 540}, {glorot_normal(), 2.0 / 540},
               {he_uniform(), 2.0 / 180},     {he_normal(), 2.0 / 180},
               {lecun_uniform(), 1.0 / 180},  {lecun_normal(), 1.0 / 180}};
  for (const auto& c : cases) {
    const Statistics s = statistics(c.initializer, kernel);
    EXPECT_NEAR(s.variance / c.variance, 1, 0.05) << "seed " << kSeed;
    EXPECT_NEAR(s.mean, 0, 5 * std::sqrt(c.variance / 7200)) << "seed " << kSeed;
  }
  EXPECT_LE(statistics(glorot_uniform(), kernel).high, std::sqrt(6.0 / 540));
}

TEST(InitializersTest, DrawFromTheDistributionAskedFor) {
  const Statistics uniform = statistics(random_uniform(2, 4), {10000});
  EXPECT_GE(uniform.low, 2);
  EXPECT_LT(uniform.high, 4);
  EXPECT_NEAR(uniform.mean, 3, 0.03);
  const Statistics normal = statistics(random_normal(1, 2), {10000});
  EXPECT_NEAR(normal.mean, 1, 0.1);
  EXPECT_NEAR(normal.variance, 4, 0.2);
  const Statistics truncated = statistics(truncated_normal(0, 1), {10000});
  EXPECT_LE(std::max(-truncated.low, truncated.high), 2);
}

TEST(InitializersTest, DoNotDependOnThreads) {
  const TensorSpec spec{DType::kFloat32, {100, 300}};
  const int threads = num_threads();
  set_num_threads(1);
  const auto one = to_vector(glorot_normal()(spec, kSeed));
  set_num_threads(3);
  EXPECT_EQ(one, to_vector(glorot_normal()(spec, kSeed)));
  set_num_threads(threads);
  EXPECT_NE(one, to_vector(glorot_normal()(spec, kSeed + 1)));
}

TEST(InitializersTest, MakeOrthogonalMatrices) {
  for (const Shape& shape : {Shape{4, 7}, Shape{7, 4}, Shape{2, 2, 5}}) {
    const auto w = to_vector(orthogonal(2)({DType::kFloat64, shape}, kSeed));
    const auto cols = static_cast<size_t>(shape.dim(-1)), rows = w.size() / cols;
    const bool by_row = rows < cols;
    const size_t count = by_row ? rows : cols;
    const auto at = [&](size_t i, size_t k) { return by_row ? w[i * cols + k] : w[k * cols + i]; };
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) {
        double dot = 0;
        for (size_t k = 0; k < std::max(rows, cols); ++k) dot += at(i, k) * at(j, k);
        EXPECT_NEAR(dot, i == j ? 4 : 0, 1e-12) << shape;
      }
    }
  }
  EXPECT_EQ(testing::error_of([] {
              orthogonal()({DType::kFloat32, {3}}, 1);
            }),
            "an orthogonal initializer needs rank 2 at least, got [3]");
}

TEST(InitializersTest, DrawNothingButFloatingNumbers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool})
    for (const Initializer& initializer :
         {random_uniform(-1, 1), truncated_normal(0, 1), glorot_uniform(), orthogonal()})
      EXPECT_NE(testing::error_of(
                    [&] {
                      initializer({dtype, {2, 3}}, kSeed);
                    },
                    Code::kUnimplemented)
                    .find(str("initializer does not support ", dtype)),
                std::string::npos);
}

TEST(InitializersTest, RefuseBoundsThatMeanNothing) {
  using testing::error_of;
  EXPECT_EQ(error_of([] { random_uniform(2, 1); }),
            "random_uniform: the bounds and their difference must be finite, and the lower one not "
            "above the other; got "
            "2 and 1");
  EXPECT_THROW(random_uniform(-1e308, 1e308), Error);
  EXPECT_EQ(error_of([] { random_normal(0, -1); }),
            "random_normal: the mean must be finite, and the standard deviation finite and not "
            "negative; got 0 and -1");
  EXPECT_EQ(error_of([] { truncated_normal(std::nan(""), 1); }),
            "truncated_normal: the mean must be finite, and the standard deviation finite and not "
            "negative; got nan and 1");
}

}  // namespace
}  // namespace cohort::initializers
