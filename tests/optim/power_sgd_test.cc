// Gradients that replicas sum as products of narrow matrices.
#include "core/optim/power_sgd.h"

#include <cmath>

#include <gmock/gmock.h>

#include "core/base/random.h"
#include "tests/optim/counting_ops.h"
#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

constexpr int64_t kRows = 8, kColumns = 10;
constexpr uint64_t kSeed = 17;

Tensor random_matrix(uint64_t stream) {
  RandomStream random(kSeed, stream);
  Tensor made(DType::kFloat64, {kRows, kColumns});
  for (double& value : std::span(made.data<double>(), kRows * kColumns))
    value = 2 * random.uniform() - 1;
  return made;
}

// Of rank 2, with the same two rows for every stream.
Tensor low_rank_matrix(uint64_t stream) {
  const Tensor factors = random_matrix(stream), rows = random_matrix(1'000'000);
  Tensor made(DType::kFloat64, {kRows, kColumns});
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j)
      made.data<double>()[i * kColumns + j] =
          factors.data<double>()[i * kColumns] * rows.data<double>()[j] +
          factors.data<double>()[i * kColumns + 1] * rows.data<double>()[kColumns + j];
  return made;
}

class PowerSgdTest : public testing::MirroredTest {
 protected:
  // Trains a matrix, from zeros, along the gradients of replicas; the total is what they add up to.
  struct Training {
    explicit Training(int replicas, const GradientOptions& gradients)
        : counting(std::make_shared<testing::CountingOps>()),
          options(first_cpus(replicas)),
          sgd(SGD(1, {.gradients = gradients})) {
      options.cross_device_ops = counting;
      strategy = std::make_unique<MirroredStrategy>(options);
      const auto scope = strategy->scope();
      weight = make_weight("w", Tensor::zeros(DType::kFloat64, {kRows, kColumns}));
      step = testing::step_along_input(sgd, weight);
    }
    void run(const std::vector<Tensor>& gradients) {
      PerReplica<std::vector<Tensor>> inputs(gradients.size());
      for (size_t r = 0; r < gradients.size(); ++r) {
        inputs[r] = {gradients[r]};
        for (size_t i = 0; i < total.size(); ++i) total[i] += gradients[r].data<double>()[i];
      }
      const auto scope = strategy->scope();
      strategy->run(step, inputs);
    }
    VariablePtr state(const std::string& name) const {
      for (const VariablePtr& variable : sgd.variables())
        if (variable->name() == str("optimizer/power_sgd_", name, "/w")) return variable;
      return nullptr;
    }
    std::vector<double> sent() const {
      std::vector<double> values = to_vector(weight->value());
      for (double& value : values) value = -value;
      return values;
    }

    std::shared_ptr<testing::CountingOps> counting;
    MirroredStrategy::Options options;
    Optimizer sgd;
    std::unique_ptr<MirroredStrategy> strategy;
    VariablePtr weight;
    Function step{[](const std::vector<Value>&) { return std::vector<Value>{}; }};
    std::vector<double> total = std::vector<double>(kRows * kColumns);
  };

  static std::vector<Tensor> gradients(uint64_t step, Tensor (*make)(uint64_t)) {
    std::vector<Tensor> made;
    for (int r = 0; r < GetParam(); ++r)
      made.push_back(make(kMaxReplicas * step + static_cast<uint64_t>(r)));
    return made;
  }
  static constexpr uint64_t kMaxReplicas = testing::kMaxReplicas;
};
INSTANTIATE_TEST_SUITE_P(Replicas, PowerSgdTest, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(PowerSgdTest, IsExactForGradientsOfItsRank) {
  for (const auto& options :
       {PowerSgdOptions{.rank = 2, .start_iteration = 2},
        PowerSgdOptions{.rank = 2, .start_iteration = 2, .error_feedback = false},
        PowerSgdOptions{.rank = 2, .start_iteration = 2, .warm_start = false},
        PowerSgdOptions{
            .rank = 2, .start_iteration = 0, .error_feedback = false, .warm_start = false}}) {
    SCOPED_TRACE(str("feedback ", options.error_feedback, ", warm ", options.warm_start));
    Training training(GetParam(), {.power_sgd = options});
    for (uint64_t step = 0; step < 7; ++step) {
      SCOPED_TRACE(str("step ", step, ", seed ", kSeed));
      const auto nothing = [](uint64_t) {
        return Tensor::zeros(DType::kFloat64, {kRows, kColumns});
      };
      training.run(gradients(step, step == 3 ? +nothing : low_rank_matrix));
      const std::vector<double> sent = training.sent();
      for (size_t i = 0; i < sent.size(); ++i) ASSERT_NEAR(sent[i], training.total[i], 1e-10);
    }
  }
}

TEST_P(PowerSgdTest, KeepsWhatItHasNotSent) {
  for (const int64_t accumulation : {1, 2}) {
    Training training(GetParam(), {.accumulation_steps = accumulation,
                                   .power_sgd = PowerSgdOptions{.start_iteration = 2}});
    for (uint64_t step = 0; step < 8; ++step) {
      SCOPED_TRACE(str("step ", step, ", seed ", kSeed, ", accumulation of ", accumulation));
      training.run(gradients(step, random_matrix));
      if ((step + 1) % static_cast<uint64_t>(accumulation) != 0) continue;
      const std::vector<double> sent = training.sent(),
                                left = to_vector(training.state("residual")->value());
      double largest = 0;
      for (size_t i = 0; i < sent.size(); ++i) {
        ASSERT_NEAR(sent[i] + left[i], training.total[i] / static_cast<double>(accumulation),
                    1e-10);
        largest = std::max(largest, std::abs(left[i]));
      }
      const bool compressed = step / static_cast<uint64_t>(accumulation) >= 2;
      EXPECT_EQ(largest > 0.1, compressed);
      for (int r = 1; r < GetParam(); ++r)
        EXPECT_EQ(to_vector(training.weight->storage(r)), to_vector(training.weight->storage(0)));
    }
  }
}

TEST_P(PowerSgdTest, DependsOnTheSumOfGradientsAlone) {
  const GradientOptions options{.power_sgd = PowerSgdOptions{.rank = 2, .start_iteration = 2}};
  Training many(GetParam(), options), one(1, options);
  for (uint64_t step = 0; step < 6; ++step) {
    const auto parts = gradients(step, random_matrix);
    Tensor sum = parts[0].clone();
    for (size_t r = 1; r < parts.size(); ++r)
      for (int64_t i = 0; i < sum.num_elements(); ++i)
        sum.data<double>()[i] += parts[r].data<double>()[i];
    many.run(parts);
    one.run({sum});
    testing::expect_near(many.weight->value(), to_vector(one.weight->value()), 1e-9);
  }
}

TEST_P(PowerSgdTest, ExchangesTheFactorsAlone) {
  if (GetParam() == 1) return;
  Training training(GetParam(), {.power_sgd = PowerSgdOptions{.start_iteration = 2}});
  for (uint64_t step = 0; step < 5; ++step) {
    training.counting->take_bytes();
    training.run(gradients(step, random_matrix));
    const int64_t elements = step < 2 ? kRows * kColumns : kRows + kColumns;
    EXPECT_EQ(training.counting->take_bytes(), 8 * elements) << "at step " << step;
  }
}

TEST(PowerSgd, CompressesWhatGetsSmallerByFar) {
  const PowerSgdOptions options;
  EXPECT_TRUE(is_low_rank({100, 100}, options));
  EXPECT_FALSE(is_low_rank({4, 4}, options));
  EXPECT_FALSE(is_low_rank({2, 1000}, options));
  EXPECT_TRUE(is_low_rank({3, 3, 8, 16}, options)) << "72 x 16";
  EXPECT_FALSE(is_low_rank({1000}, options));
  EXPECT_FALSE(is_low_rank({}, options));
  EXPECT_FALSE(is_low_rank({100, 0}, options));
  EXPECT_FALSE(is_low_rank({100, 100}, {.rank = 25}));
  EXPECT_TRUE(is_low_rank({100, 100}, {.rank = 24}));
  EXPECT_TRUE(is_low_rank({5, 5}, {.min_compression = 1}));
}

TEST(PowerSgd, RefusesNumbersOutOfRange) {
  const auto refused = [](const PowerSgdOptions& options) {
    return testing::error_of([&] { SGD(1, {.gradients = {.power_sgd = options}}); });
  };
  EXPECT_THAT(refused({.rank = 0}), ::testing::HasSubstr("rank must be at least 1, got 0"));
  for (const bool feedback : {true, false})
    EXPECT_THAT(
        refused({.start_iteration = 1, .error_feedback = feedback, .warm_start = !feedback}),
        ::testing::HasSubstr("start_iteration with error_feedback or warm_start must be "
                             "at least 2, got 1"));
  EXPECT_THAT(refused({.start_iteration = -1, .error_feedback = false, .warm_start = false}),
              ::testing::HasSubstr("start_iteration must be at least 0"));
  EXPECT_THAT(refused({.min_compression = std::nan("")}), ::testing::HasSubstr("min_compression"));
}

}  // namespace
}  // namespace cohort::optim
