// Trains a small CNN on generated handwritten digits with two replicas, which share this machine's
// cores.
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "cohort.h"

using namespace cohort;

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains a small CNN on generated handwritten digits, on two replicas.");
    const int64_t epochs = flags.integer("epochs", 4, "passes over the training data", {.min = 1});
    auto logs = flags.text("logs", "", "folder for TensorBoard; empty: a new temporary one");
    auto save =
        flags.text("save", "", "file for the weights; empty: one in a new temporary folder");
    flags.finish();
    std::error_code unknown;  // then what follows tells
    if (std::filesystem::is_directory(save, unknown))
      invalid("--save=", save, " is a folder, not a file");
    if (!save.empty()) check_writable(save);  // before training
    const std::string folder =
        logs.empty() || save.empty() ? make_temporary_folder("quickstart") : "";
    if (logs.empty()) logs = folder + "/logs";
    if (save.empty()) save = folder + "/model.safetensors";

    set_logical_cpus(2);
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    const auto scope = strategy.scope();

    auto model =
        nn::Sequential({nn::Conv2D(16, 3, {.activation = nn::relu}), nn::MaxPool2D(2),
                        nn::Conv2D(32, 3, {.activation = nn::relu}), nn::MaxPool2D(2),
                        nn::Flatten(), nn::Dense(64, {.activation = nn::relu}), nn::Dense(10)});
    model.compile({.optimizer = optim::Adam(0.002),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {metrics::SparseCategoricalAccuracy("accuracy")}});

    const auto digits = data::synthetic_digits(14'000);
    const auto train =
        digits.take(12'000).shuffle(12'000).batch(128);  // the global batch: 64 rows a replica
    const auto test = digits.skip(12'000).batch(500);
    model.fit(train, {.epochs = epochs,
                      .validation_data = test,
                      .callbacks = {callbacks::TensorBoard(logs), callbacks::TerminateOnNaN()}});

    model.save_weights(save);
    std::printf("%s\nTensorBoard logs: %s\nWeights: %s\n", model.summary().c_str(), logs.c_str(),
                save.c_str());
    std::printf("test_accuracy=%.4f\n", model.evaluate(test).at("accuracy"));
  });
}
