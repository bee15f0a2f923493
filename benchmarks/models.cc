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

// He et al. 2016 for ImageNet: 1x1, 3x3, 1x1, where the last has four times as many filters.
nn::Layer bottleneck(int64_t filters, int64_t stride, bool changes_shape) {
  std::vector<nn::Layer> shortcut;
  if (changes_shape) shortcut = {convolution(4 * filters, 1, stride), batch_norm()};
  return nn::Residual({convolution(filters, 1, 1), batch_norm(), nn::ActivationLayer(nn::relu),
                       convolution(filters, 3, stride), batch_norm(), nn::ActivationLayer(nn::relu),
                       convolution(4 * filters, 1, 1), batch_norm()},
                      shortcut, {.activation = nn::relu});
}

Benchmark resnet50(int64_t batch) {
  constexpr int64_t kClasses = 1000;
  std::vector<nn::Layer> layers = {
      convolution(64, 7, 2), batch_norm(), nn::ActivationLayer(nn::relu),
      nn::MaxPool2D(3, {.strides = 2, .padding = nn::Padding::explicit_padding(1, 1)})};
  int64_t filters = 64;
  for (const int64_t blocks : {3, 4, 6, 3}) {
    for (int64_t k = 0; k < blocks; ++k)
      layers.push_back(bottleneck(filters, k == 0 && filters > 64 ? 2 : 1, k == 0));
    filters *= 2;
  }
  layers.push_back(nn::GlobalAveragePooling2D());
  layers.push_back(nn::Dense(kClasses));
  return {nn::make_sequential(layers), random_images({batch, 224, 224, 3}),
          random_integers({batch}, kClasses)};
}

nn::Layer layer_norm() { return nn::LayerNormalization({.epsilon = 1e-5}); }

// Logits by the rows of an embedding.
nn::Layer tied_head(const nn::Layer& embedding) {
  return nn::Lambda([embedding](const Value& x) {
    const Value table = embedding.trainable_variables().front()->read();
    return ops::matmul(x, table, {.transpose_b = true});
  });
}

}  // namespace

Benchmark make_gpt(const GptSizes& s, int64_t batch) {
  const nn::Layer tokens = nn::Embedding(s.vocabulary, s.size);
  const auto activation = s.has_tied_head ? nn::gelu_tanh : nn::gelu;
  std::vector<nn::Layer> layers = {tokens, nn::PositionEmbedding(s.length)};
  for (int64_t k = 0; k < s.layers; ++k) {
    layers.push_back(nn::Residual(
        {layer_norm(), nn::MultiHeadAttention(s.heads, s.size / s.heads, {.causal = true})}));
    layers.push_back(nn::Residual(
        {layer_norm(), nn::Dense(4 * s.size, {.activation = activation}), nn::Dense(s.size)}));
  }
  if (s.has_tied_head) {
    layers.push_back(layer_norm());
    layers.push_back(tied_head(tokens));
  } else {
    layers.push_back(nn::Dense(s.vocabulary));
  }
  const auto vocabulary = static_cast<uint64_t>(s.vocabulary);
  return {nn::make_sequential(layers), random_integers({batch, s.length}, vocabulary),
          random_integers({batch, s.length}, vocabulary)};
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"mlp",      "cnn", "resnet20", "resnet56",
                                                 "resnet50", "gpt", "gpt2"};
  return names;
}

int64_t usual_batch(const std::string& name) {
  if (name == "mlp") return 128;
  if (name == "resnet50") return 256;
  return name == "gpt" || name == "gpt2" ? 8 : 64;
}

int64_t count_parameters(const nn::Layer& network) {
  int64_t count = 0;
  for (const auto& variable : network.trainable_variables())
    count += variable->spec().shape.num_elements();
  return count;
}

Benchmark make_benchmark(const std::string& name, int64_t batch) {
  if (name == "mlp") return mlp(batch);
  if (name == "cnn") return cnn(batch);
  if (name == "resnet20") return resnet(20, batch);
  if (name == "resnet56") return resnet(56, batch);
  if (name == "resnet50") return resnet50(batch);
  if (name == "gpt")
    return make_gpt({.vocabulary = 256, .length = 128, .size = 256, .heads = 4, .layers = 4},
                    batch);
  if (name == "gpt2")
    return make_gpt({.vocabulary = 50'257,
                     .length = 1024,
                     .size = 768,
                     .heads = 12,
                     .layers = 12,
                     .has_tied_head = true},
                    batch);
  invalid("there is no benchmark model \"", name, "\"");
}

}  // namespace cohort::benchmarks
