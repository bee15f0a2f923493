#include "benchmarks/models.h"

#include <gtest/gtest.h>

namespace cohort::benchmarks {
namespace {

int64_t parameters(const Benchmark& benchmark) {
  benchmark.network.build({benchmark.input.spec()});
  return count_parameters(benchmark.network);
}

// What publications and other libraries give for the last two, and sums by hand for the others.
TEST(Models, HaveTheParametersOfTheirModels) {
  EXPECT_EQ(parameters(make_benchmark("mlp", 1)), 1'863'690);
  EXPECT_EQ(parameters(make_benchmark("cnn", 1)), 1'199'882);
  EXPECT_EQ(parameters(make_benchmark("resnet20", 1)), 272'282);
  EXPECT_EQ(parameters(make_benchmark("resnet56", 1)), 855'578);
  EXPECT_EQ(parameters(make_benchmark("gpt", 1)), 3'323'136);
  EXPECT_EQ(parameters(make_benchmark("resnet50", 1)), 25'557'032);
  EXPECT_EQ(parameters(make_benchmark("gpt2", 1)), 124'439'808);
}

constexpr GptSizes kTiny{
    .vocabulary = 11, .length = 6, .size = 8, .heads = 2, .layers = 1, .has_tied_head = true};

TEST(Models, ATiedHeadHasNoWeightsOfItsOwn) {
  GptSizes untied = kTiny;
  untied.has_tied_head = false;
  const int64_t last_norm = 2 * kTiny.size, head = (kTiny.size + 1) * kTiny.vocabulary;
  EXPECT_EQ(parameters(make_gpt(kTiny, 1)) - last_norm, parameters(make_gpt(untied, 1)) - head);
}

// Its gradient is the sum of those of the lookup, which is sparse, and of the product, which has
// every row.
TEST(Models, ATiedHeadLearns) {
  const Benchmark gpt = make_gpt(kTiny, 4);
  gpt.network.build({gpt.input.spec()});
  const optim::Optimizer optimizer = optim::SGD(0.1, {.momentum = 0.9});
  const Function step = function(
      [&](Value x, Value label) {
        const Value loss = ops::reduce_mean(
            losses::sparse_softmax_cross_entropy(gpt.network(x, {.training = true}), label));
        optimizer.minimize(loss, gpt.network.trainable_variables());
        return loss;
      },
      "gpt");
  const auto table = gpt.network.trainable_variables().front();
  const Tensor before = table->value();
  ASSERT_EQ(table->spec().shape, Shape({kTiny.vocabulary, kTiny.size}));
  const double first = step({gpt.input, gpt.label})[0].item();
  const Tensor after = table->value();
  for (int64_t row = 0; row < kTiny.vocabulary; ++row) {
    bool moved = false;
    for (int64_t i = row * kTiny.size; i < (row + 1) * kTiny.size; ++i)
      moved = moved || before.data<float>()[i] != after.data<float>()[i];
    EXPECT_TRUE(moved) << "row " << row;
  }
  double last = first;
  for (int i = 0; i < 60; ++i) last = step({gpt.input, gpt.label})[0].item();
  EXPECT_LT(last, 0.9 * first);
}

}  // namespace
}  // namespace cohort::benchmarks
