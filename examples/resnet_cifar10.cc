// ResNet-20 (or deeper) on CIFAR-10, after He et al. 2015, section 4.2.
#include <algorithm>
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

nn::Layer convolution(int64_t filters, int64_t size, int64_t stride) {
  return nn::Conv2D(filters, size,
                    {.strides = stride,
                     .padding = nn::Padding::same(),
                     .use_bias = false,
                     .kernel_initializer = initializers::he_normal(),
                     .kernel_regularizer = regularizers::l2(1e-4)});
}

nn::Layer block(int64_t filters, int64_t stride) {
  std::vector<nn::Layer> shortcut;
  if (stride != 1) shortcut = {convolution(filters, 1, stride), nn::BatchNormalization()};
  return nn::Residual(
      {convolution(filters, 3, stride), nn::BatchNormalization(), nn::ActivationLayer(nn::relu),
       convolution(filters, 3, 1), nn::BatchNormalization()},
      shortcut, {.activation = nn::relu});
}

Model resnet(int64_t depth) {
  std::vector<nn::Layer> layers = {convolution(16, 3, 1), nn::BatchNormalization(),
                                   nn::ActivationLayer(nn::relu)};
  const int64_t blocks = (depth - 2) / 6;
  for (const int64_t filters : {16, 32, 64}) {
    for (int64_t i = 0; i < blocks; ++i)
      layers.push_back(block(filters, i == 0 && filters > 16 ? 2 : 1));
  }
  layers.push_back(nn::GlobalAveragePooling2D());
  layers.push_back(nn::Dense(10));
  return nn::Sequential(layers);
}

struct Cifar10 {
  data::Dataset train, test;
};

// Both splits lie in memory afterwards.
Cifar10 load(const std::string& dir) {
  return {data::images_from_cifar10(dir, "train"), data::images_from_cifar10(dir, "test")};
}

Cifar10 generate(const std::string& dir, int64_t images) {
  data::write_synthetic_cifar10(dir, {.train = images, .test = images / 5});
  return load(dir);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "ResNet on CIFAR-10.");
    const auto data_dir =
        flags.text("data_dir", "", "folder with CIFAR-10's .bin files; empty: 10,000 drawn images");
    const auto generate_in =
        flags.text("generate_in", "", "folder to keep the drawn images in; empty: none");
    const auto depth =
        flags.integer("depth", 20, "6 n + 2: 20, 32, 44, 56, 110", {.min = 8, .max = 1202});
    const auto replicas =
        flags.integer("replicas", 1, "replicas that share the cores", {.min = 1, .max = 64});
    const auto epochs = flags.integer("epochs", 5, "passes over the training images", {.min = 1});
    const auto batch =
        flags.integer("batch", 128, "images in a step, over all replicas", {.min = 1});
    const auto images =
        flags.integer("images", 50'000, "train on so many images at most", {.min = 1});
    const auto precision = flags.text("precision", "float32", "of matrix products and convolutions",
                                      {.choices = precision_names()});
    const auto backup_dir =
        flags.text("backup_dir", "", "folder to continue from when started again; none: nowhere");
    flags.finish();
    if (depth % 6 != 2) invalid("--depth=", depth, " is not allowed: expected 6 n + 2");
    if (!data_dir.empty() && !generate_in.empty())
      invalid("--generate_in=", generate_in, " has no use with --data_dir=", data_dir);

    set_logical_cpus(static_cast<int>(replicas));
    MirroredStrategy strategy;
    const auto scope = strategy.scope();
    const int64_t generated = std::clamp<int64_t>(images, 5, 10'000);
    const auto [all, held_out] = !data_dir.empty() ? load(data_dir)
                                 : !generate_in.empty()
                                     ? generate(generate_in, generated)
                                     : generate(TemporaryFolder("cifar10").path(), generated);
    const auto train = all.take(images).shuffle(50'000).batch(batch);
    const auto test = held_out.batch(500);

    const double steps = static_cast<double>(epochs) * static_cast<double>(train.cardinality());
    auto model = resnet(depth);
    model.compile({.optimizer = optim::SGD(optim::schedules::PiecewiseConstantDecay(
                                               {steps / 2, steps * 3 / 4}, {0.1, 0.01, 0.001}),
                                           {.momentum = 0.9}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {metrics::SparseCategoricalAccuracy("accuracy")},
                   .precision = precision_from_name(precision)});
    std::vector<CallbackPtr> callbacks = {callbacks::TerminateOnNaN()};
    if (!backup_dir.empty())
      callbacks.push_back(callbacks::BackupAndRestore(backup_dir, {.save_freq = 100}));
    model.fit(train, {.epochs = epochs, .validation_data = test, .callbacks = callbacks});
    std::printf("test_accuracy=%.4f\n", model.evaluate(test).at("accuracy"));
  });
}
