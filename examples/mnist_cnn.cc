// Trains a CNN on MNIST from its IDX files. It is smooth (no max-pooling, no ReLU), so that
// rounding errors do not grow, and the loss curve is the same for any number of replicas of one
// process. Several processes train together, each on its part of the images in an order of its own:
//
//   cohort-run --workers=2 mnist_cnn --data_dir=DIR
//   srun --ntasks=4 mnist_cnn --data_dir=DIR
#include <cstdio>

#include "cohort.h"
#include "examples/mnist.h"

using namespace cohort;

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains a CNN on MNIST.");
    const auto data_dir = flags.text("data_dir", "", "folder with the IDX files, plain or .gz");
    const auto replicas =
        flags.integer("replicas", 1, "replicas of each process", {.min = 1, .max = 64});
    const auto epochs = flags.integer("epochs", 5, "passes over the training images", {.min = 1});
    const auto batch =
        flags.integer("batch", 32, "images in a step, over all replicas", {.min = 1});
    const auto backup_dir =
        flags.text("backup_dir", "", "folder to continue from when started again; none: nowhere");
    const auto seed = flags.integer("seed", 1, "of weights and order", {.min = 0});
    flags.finish();
    if (data_dir.empty()) invalid("--data_dir is missing: the folder with MNIST's IDX files");

    set_global_seed(static_cast<uint64_t>(seed));
    set_logical_cpus(static_cast<int>(replicas));
    MultiWorkerMirroredStrategy strategy;  // MirroredStrategy, unless started as several processes
    const auto scope = strategy.scope();
    auto model = nn::Sequential(
        {nn::Conv2D(32, 3, {.activation = nn::gelu_tanh}), nn::AveragePooling2D(2),
         nn::Conv2D(64, 3, {.activation = nn::gelu_tanh}), nn::AveragePooling2D(2), nn::Flatten(),
         nn::Dense(128, {.activation = nn::gelu_tanh}), nn::Dense(10)});
    // The rate rises over the first tenth of the steps and falls to 0 along half a cosine.
    const Mnist mnist = load_mnist(data_dir);
    const auto train = mnist.train.shuffle(mnist.train_images).batch(batch);
    const double steps = static_cast<double>(epochs) * static_cast<double>(train.cardinality());
    const auto rate = optim::schedules::CosineDecay(
        0, 0.9 * steps, {.warmup_target = 0.05, .warmup_steps = 0.1 * steps});
    model.compile({.optimizer = optim::SGD(rate, {.momentum = 0.9}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {metrics::SparseCategoricalAccuracy("accuracy")}});
    const auto test = mnist.test.batch(500);
    FitOptions options{
        .epochs = epochs, .validation_data = test, .callbacks = {callbacks::TerminateOnNaN()}};
    if (!backup_dir.empty()) options.callbacks.push_back(callbacks::BackupAndRestore(backup_dir));
    model.fit(train, options);
    const double accuracy = model.evaluate(test).at("accuracy");
    if (strategy.is_chief()) std::printf("test_accuracy=%.4f\n", accuracy);
  });
}
