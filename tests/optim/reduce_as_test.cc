// Gradients that replicas sum in 16 bits.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "core/tensor/half.h"
#include "tests/optim/counting_ops.h"
#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

constexpr int64_t kElements = 100;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using GradientOf = std::function<double(int replica)>;
double ones(int) { return 1; }
double fractions(int replica) { return 1.01 + 0.01 * replica; }

class ReduceAsTest : public testing::MirroredTest {
 protected:
  struct Step {
    double moved;  // by how much each element went down
    int64_t bytes;
  };
  // One step of SGD(1), from zeros, along a gradient of equal elements for each replica.
  static Step step_along(const GradientOf& gradient, const GradientOptions& options,
                         DType dtype = DType::kFloat32) {
    const auto counting = std::make_shared<testing::CountingOps>();
    auto mirrored = first_cpus(GetParam());
    mirrored.cross_device_ops = counting;
    MirroredStrategy strategy(mirrored);
    const auto scope = strategy.scope();
    const auto weight = testing::make_weight("w", Tensor::zeros(dtype, {kElements}));
    const Function step = testing::step_along_input(SGD(1, {.gradients = options}), weight);
    PerReplica<std::vector<Tensor>> inputs(static_cast<size_t>(GetParam()));
    for (int r = 0; r < GetParam(); ++r)
      inputs[static_cast<size_t>(r)] = {Tensor::full(dtype, {kElements}, gradient(r))};
    counting->take_bytes();
    strategy.run(step, inputs);
    const std::vector<double> values = testing::to_vector(weight->value());
    for (const double value : values) EXPECT_EQ(value, values[0]);
    return {-values[0], counting->take_bytes()};
  }

  // What elements of so many bytes come to.
  static int64_t bytes_of(int64_t element) { return GetParam() == 1 ? 0 : element * kElements; }

  template <typename Half>
  static double sum_in(const GradientOf& gradient) {
    const auto rounded = [](double value) {
      return static_cast<float>(Half(static_cast<float>(value)));
    };
    double sum = 0;
    for (int r = 0; r < GetParam(); ++r) sum += rounded(gradient(r) / GetParam());
    return rounded(sum) * GetParam();
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, ReduceAsTest, ::testing::Values(1, 2, 3, 7));

TEST_P(ReduceAsTest, RoundsEachGradientAndTheirSum) {
  const Step brain = step_along(fractions, {.reduce_as = DType::kBFloat16}),
             half = step_along(fractions, {.reduce_as = DType::kFloat16});
  EXPECT_NEAR(brain.moved, sum_in<bfloat16>(fractions), 1e-5);
  EXPECT_NEAR(half.moved, sum_in<float16>(fractions), 1e-5);
  EXPECT_EQ(brain.bytes, bytes_of(2));
  EXPECT_EQ(half.bytes, bytes_of(2));
}

TEST_P(ReduceAsTest, LeavesOtherDtypesAsTheyAre) {
  const Step step = step_along(fractions, {.reduce_as = DType::kBFloat16}, DType::kFloat64);
  double sum = 0;
  for (int r = 0; r < GetParam(); ++r) sum += fractions(r);
  EXPECT_NEAR(step.moved, sum, 1e-12);
  EXPECT_EQ(step.bytes, bytes_of(8));
}

TEST_P(ReduceAsTest, OverflowsWhereTheMeanDoes) {
  const auto large = [](int) { return 60000.0; };
  const auto too_large = [](int) { return 70000.0; };
  const double replicas = GetParam();
  EXPECT_NEAR(step_along(large, {.reduce_as = DType::kFloat16}).moved, 60000 * replicas,
              100 * replicas);
  EXPECT_EQ(step_along(too_large, {.reduce_as = DType::kFloat16}).moved, kInfinity);
  EXPECT_NEAR(step_along(too_large, {.reduce_as = DType::kBFloat16}).moved, 70000 * replicas,
              1000 * replicas);
}

TEST_P(ReduceAsTest, LeavesAnOverflowToTheLossScale) {
  const auto moved = [](double scale) {
    return step_along(ones, {.reduce_as = DType::kFloat16,
                             .loss_scale = LossScale{.initial_scale = scale}})
        .moved;
  };
  EXPECT_EQ(moved(0x1p17), 0) << "an update that was left out";
  EXPECT_NEAR(moved(0x1p15), GetParam(), 1e-2);
}

TEST(ReduceAs, RefusesWhatItCannotDo) {
  const auto refused = [](const GradientOptions& options) {
    return testing::error_of([&] { SGD(1, {.gradients = options}); });
  };
  EXPECT_EQ(refused({.reduce_as = DType::kFloat32}),
            "reduce_as must be bfloat16 or float16, got float32");
  EXPECT_THAT(refused({.power_sgd = PowerSgdOptions{}, .reduce_as = DType::kFloat16}),
              ::testing::HasSubstr("reduce_as and power_sgd cannot both be set"));
}

}  // namespace
}  // namespace cohort::optim
