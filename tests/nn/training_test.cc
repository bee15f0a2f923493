#include "core/nn/losses.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "tests/nn/testing.h"

namespace cohort::nn {
namespace {

using testing::kSeed;
using testing::random_tensor;

// Trains to tell whether the sum of a row is positive; returns the losses.
std::vector<double> train(const Layer& network, const optim::Optimizer& optimizer,
                          const Shape& input) {
  const Tensor x = random_tensor(input);
  const int64_t rows = input[0];
  const auto values = testing::to_vector(x);
  Tensor label(DType::kInt32, {rows});
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    const auto size = static_cast<int64_t>(values.size()) / rows;
    for (int64_t i = 0; i < size; ++i) sum += values[static_cast<size_t>(r * size + i)];
    label.data<int32_t>()[r] = sum > 0;
  }
  const Function step([&](const std::vector<Value>& in) {
    const Value y = network(in[0], {.training = true});
    const Value loss = ops::reduce_mean(losses::sparse_softmax_cross_entropy(y, in[1]));
    optimizer.minimize(loss, network.trainable_variables());
    return std::vector<Value>{loss};
  });
  std::vector<double> losses;
  for (int i = 0; i < 40; ++i) losses.push_back(step({x, label})[0].item());
  return losses;
}

TEST(TrainingTest, LowersTheLossOfADenseNetwork) {
  const auto losses = train(make_sequential({Dense(8, {.activation = tanh}), Dense(2)}),
                            optim::Adam(0.05), {32, 4});
  EXPECT_LT(losses.back(), 0.5 * losses.front()) << "seed " << kSeed;
}

TEST(TrainingTest, LowersTheLossOfAConvolutionalNetwork) {
  const Layer network = make_sequential(
      {Conv2D(4, 3, {.padding = Padding::same(), .use_bias = false}), BatchNormalization(),
       ActivationLayer(relu), MaxPool2D(), Flatten(), Dense(2)});
  const auto losses = train(network, optim::SGD(0.1, {.momentum = 0.9}), {32, 6, 6, 1});
  EXPECT_LT(losses.back(), 0.5 * losses.front()) << "seed " << kSeed;
}

TEST(TrainingTest, LowersTheLossOfATransformer) {
  const Layer network = make_sequential({PositionEmbedding(5),
                                         Residual({LayerNormalization(), MultiHeadAttention(2, 3)}),
                                         RMSNorm(), Flatten(), Dense(2)});
  const auto losses = train(network, optim::Adam(0.02), {32, 5, 6});
  EXPECT_LT(losses.back(), 0.5 * losses.front()) << "seed " << kSeed;
}

TEST(TrainingTest, GivesTheSameBitsTwice) {
  const auto once = [] {
    return train(make_sequential({Dense(8, {.activation = relu}), Dropout(0.5), Dense(2)}),
                 optim::Adam(0.05), {32, 4});
  };
  EXPECT_EQ(once(), once());
}

}  // namespace
}  // namespace cohort::nn
