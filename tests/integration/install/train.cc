// A program of a user of Cohort, who knows nothing of its source tree.
#include <cstdio>
#include <string>

#include "cohort.h"

using namespace cohort;

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Learns drawn digits on two replicas.");
    const auto epochs = flags.integer("epochs", 2, "passes over the data", {.min = 1});
    flags.finish();
    set_logical_cpus(2);
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    const auto scope = strategy.scope();
    auto model = nn::Sequential({nn::Flatten(), nn::Dense(10)});
    model.compile({.optimizer = optim::SGD(0.1),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    const auto history = model.fit(data::synthetic_digits(256).batch(64),
                                   {.epochs = epochs, .verbose = Verbose::kSilent});
    for (const double loss : history["loss"]) std::printf("loss=%.4f\n", loss);
    std::printf("replicas=%d\n", strategy.num_replicas_in_sync());
    std::printf("version=%s library=%s\n", COHORT_VERSION, std::string(library_version()).c_str());
  });
}
