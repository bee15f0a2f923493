#include <gmock/gmock.h>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 2 * 3 weights and 3 biases of float32.
Model small_model() { return nn::Sequential({nn::Dense(3)}); }

class SummaryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(2, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }
};

TEST_F(SummaryTest, ShowsThatCpusHoldEverythingOnce) {
  const auto shows_one_copy = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    auto model = small_model();
    model.build({{DType::kFloat32, {1, 2}}});
    EXPECT_THAT(model.summary(), HasSubstr("Variables on cpu:0: 36 B\nVariables on cpu:1: 0 B\n"));
  };
  MirroredStrategy mirrored;
  shows_one_copy(mirrored);
  CentralStorageStrategy central;
  shows_one_copy(central);
}

TEST_F(SummaryTest, CountsWhatTheOptimizerKeeps) {
  MirroredStrategy strategy;
  const auto scope = strategy.scope();
  auto model = small_model();
  model.compile({.optimizer = optim::Adam(), .loss = losses::MeanSquaredError()});
  model.build({{DType::kFloat32, {1, 2}}});
  model.optimizer().build(model.trainable_variables());
  // Thrice the weights, and two counters of 8 bytes.
  EXPECT_THAT(model.summary(), HasSubstr("Variables on cpu:0: 124 B\nVariables on cpu:1: 0 B\n"));
}

// Of the 60 bytes of trained weights, the optimizer keeps twice as much, and two counters of 8
// bytes; each replica has moving statistics of its own, 24 bytes.
TEST_F(SummaryTest, CountsUnderEachStrategyWhatIsThere) {
  const auto lines_under = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    auto model = nn::Sequential({nn::Dense(3), nn::BatchNormalization()});
    model.compile({.optimizer = optim::Adam(), .loss = losses::MeanSquaredError()});
    model.build({{DType::kFloat32, {1, 2}}});
    model.optimizer().build(model.trainable_variables());
    const std::string summary = model.summary();
    const size_t lines = summary.find("Variables on ");
    return lines == summary.npos ? "" : summary.substr(lines);
  };
  MirroredStrategy mirrored;
  EXPECT_EQ(lines_under(mirrored), "Variables on cpu:0: 220 B\nVariables on cpu:1: 24 B\n");
  CentralStorageStrategy central;
  EXPECT_EQ(lines_under(central), "Variables on cpu:0: 220 B\nVariables on cpu:1: 24 B\n");
  CentralStorageStrategy elsewhere({.parameter_device = "cpu:1"});
  EXPECT_EQ(lines_under(elsewhere), "Variables on cpu:0: 24 B\nVariables on cpu:1: 220 B\n");
}

TEST_F(SummaryTest, DoesNotSpeakOfDevicesWhereThereIsOneReplica) {
  auto model = small_model();
  model.build({{DType::kFloat32, {1, 2}}});
  EXPECT_THAT(model.summary(), Not(HasSubstr("cpu")));
}

TEST_F(SummaryTest, TellsWhatCompiledStepsHold) {
  auto model = small_model();
  model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  const auto train = [&](int64_t rows) {
    model.fit(Tensor::zeros(DType::kFloat32, {rows, 2}), Tensor::zeros(DType::kFloat32, {rows, 3}),
              {.verbose = Verbose::kSilent, .batch_size = 4});
    return model.step_memory();
  };
  EXPECT_EQ(model.step_memory().plans, 0);
  const FunctionMemory full = train(8);
  EXPECT_EQ(full.plans, 1);
  EXPECT_GT(full.bytes, 0u);
  const FunctionMemory with_partial = train(7);
  EXPECT_EQ(with_partial.plans, 2) << "the last batch has 3 rows";
  EXPECT_GT(with_partial.bytes, full.bytes);
  EXPECT_EQ(train(7).plans, 2);
  EXPECT_THAT(model.summary(), HasSubstr("Compiled steps: 2, which hold "));
}

}  // namespace
}  // namespace cohort
