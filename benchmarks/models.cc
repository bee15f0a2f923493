#include "benchmarks/models.h"

#include "core/base/random.h"

namespace cohort::benchmarks {
namespace {

constexpr uint64_t kInputSeed = 1;

Tensor random_images(const Shape& shape) {
  RandomStream random(kInputSeed);
  Tensor images(DType::kFloat32, shape);
  for (int64_t i = 0; i < images.num_elements(); ++i)
    images.data<float>()[i] = static_cast<float>(random.uniform());
  return images;
}

Tensor random_integers(const Shape& shape, uint64_t below) {
  RandomStream random(kInputSeed);
  Tensor integers(DType::kInt32, shape);
  for (int64_t i = 0; i < integers.num_elements(); ++i)
    integers.data<int32_t>()[i] = static_cast<int32_t>(random.below(below));
  return integers;
}

Benchmark mlp(int64_t batch) {
  return {nn::make_sequential({nn::Dense(1024, {.activation = nn::relu}),
                               nn::Dense(1024, {.activation = nn::relu}), nn::Dense(10)}),
          random_images({batch, 784}), random_integers({batch}, 10)};
}

Benchmark cnn(int64_t batch) {
  return {
      nn::make_sequential({nn::Conv2D(32, 3, {.activation = nn::relu}),
                           nn::Conv2D(64, 3, {.activation = nn::relu}), nn::MaxPool2D(2),
                           nn::Flatten(), nn::Dense(128, {.activation = nn::relu}), nn::Dense(10)}),
      random_images({batch, 28, 28, 1}), random_integers({batch}, 10)};
}

nn::Layer convolution(int64_t filters, int64_t kernel, int64_t stride) {
  return nn::Conv2D(filters, kernel,
                    {.strides = stride,
                     .padding = nn::Padding::explicit_padding(kernel / 2, kernel / 2),
                     .use_bias = false});
}

nn::Layer batch_norm() { return nn::BatchNormalization({.momentum = 0.9, .epsilon = 1e-5}); }

// He et al. 2016 for CIFAR, with plain 1x1 convolutions where the shape changes.
nn::Layer block(int64_t filters, int64_t stride, bool changes_shape) {
  std::vector<nn::Layer> shortcut;
  if (changes_shape) shortcut.push_back(convolution(filters, 1, stride));
  return nn::Residual({convolution(filters, 3, stride), batch_norm(), nn::ActivationLayer(nn::relu),
                       convolution(filters, 3, 1), batch_norm()},
                      shortcut, {.activation = nn::relu});
}

Benchmark resnet(int64_t depth, int64_t batch) {
  std::vector<nn::Layer> layers = {convolution(16, 3, 1), batch_norm(),
                                   nn::ActivationLayer(nn::relu)};
  for (int64_t filters : {16, 32, 64})
    for (int64_t k = 0; k < (depth - 2) / 6; ++k) {
      const bool changes_shape = k == 0 && filters > 16;
      layers.push_back(block(filters, changes_shape ? 2 : 1, changes_shape));
    }
  layers.push_back(nn::GlobalAveragePooling2D());
  layers.push_back(nn::Dense(10));
  return {nn::make_sequential(layers), random_images({batch, 32, 32, 3}),
          random_integers({batch}, 10)};
}

// A pre-norm transformer of 4 layers over 128 bytes.
Benchmark gpt(int64_t batch) {
  constexpr int64_t kVocabulary = 256, kLength = 128, kSize = 256, kHeads = 4, kLayers = 4;
  const auto norm = [] { return nn::LayerNormalization({.epsilon = 1e-5}); };
  std::vector<nn::Layer> layers = {nn::Embedding(kVocabulary, kSize),
                                   nn::PositionEmbedding(kLength)};
  for (int64_t k = 0; k < kLayers; ++k) {
    layers.push_back(
        nn::Residual({norm(), nn::MultiHeadAttention(kHeads, kSize / kHeads, {.causal = true})}));
    layers.push_back(
        nn::Residual({norm(), nn::Dense(4 * kSize, {.activation = nn::gelu}), nn::Dense(kSize)}));
  }
  layers.push_back(nn::Dense(kVocabulary));
  return {nn::make_sequential(layers), random_integers({batch, kLength}, kVocabulary),
          random_integers({batch, kLength}, kVocabulary)};
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"mlp", "cnn", "resnet20", "resnet56", "gpt"};
  return names;
}

int64_t usual_batch(const std::string& name) {
  return name == "mlp" ? 128 : name == "gpt" ? 8 : 64;
}

Benchmark make_benchmark(const std::string& name, int64_t batch) {
  if (name == "mlp") return mlp(batch);
  if (name == "cnn") return cnn(batch);
  if (name == "resnet20") return resnet(20, batch);
  if (name == "resnet56") return resnet(56, batch);
  if (name == "gpt") return gpt(batch);
  invalid("there is no benchmark model \"", name, "\"");
}

}  // namespace cohort::benchmarks
