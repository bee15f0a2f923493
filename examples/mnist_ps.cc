// Digits learnt with parameter servers: asynchronously, with bounded staleness, or synchronously.
//
//   cohort-run --workers=2 --ps=1 mnist_ps                    # every gradient as it comes
//   cohort-run --workers=2 --ps=1 mnist_ps --max_staleness=2
//   cohort-run --workers=2 --ps=1 mnist_ps --sync             # the mean of the workers' gradients
//   cohort-run --workers=2 --ps=1 --evaluator mnist_ps --checkpoints=DIR
//
// Without --data_dir, the digits are drawn rather than MNIST's.
#include <cstdio>

#include "cohort.h"
#include "examples/mnist.h"

using namespace cohort;

namespace {

Model classifier() {
  return nn::Sequential({nn::Flatten(), nn::Dense(128, {.activation = nn::relu}), nn::Dense(10)});
}

void compile(Model& model) {
  model.compile({.optimizer = optim::SGD(0.05, {.momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metrics::SparseCategoricalAccuracy("accuracy")}});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains on digits with parameter servers.");
    const auto data_dir =
        flags.text("data_dir", "", "folder with MNIST's IDX files; none: drawn digits");
    const auto images = flags.integer("images", 6000, "of the drawn digits", {.min = 10});
    const bool sync = flags.boolean("sync", false, "apply the mean of all workers' gradients");
    const auto max_staleness = flags.integer(
        "max_staleness", -1, "steps that a worker may be ahead of the slowest; -1: any number",
        {.min = -1});
    const bool scale = flags.boolean("scale_learning_rate", false, "by a gradient's staleness");
    const auto epochs = flags.integer("epochs", 3, "passes over the images", {.min = 1});
    const auto batch = flags.integer("batch", 32, "images in a worker's step", {.min = 1});
    const auto checkpoints = flags.text(
        "checkpoints", "", "folder for one after each epoch, which an evaluator looks at; none");
    const auto seed = flags.integer("seed", 1, "of weights and order", {.min = 0});
    flags.finish();

    set_global_seed(static_cast<uint64_t>(seed));
    ParameterServerStrategy::Options options{.scale_learning_rate = scale};
    if (!data_dir.empty() && flags.is_given("images"))
      invalid("--images=", images, " has no use with --data_dir=", data_dir);
    if (sync && max_staleness > 0)
      invalid("--sync means --max_staleness=0, and --max_staleness is ", max_staleness);
    if (scale && (sync || max_staleness == 0))
      invalid("--scale_learning_rate has no use with ", sync ? "--sync" : "--max_staleness=0",
              ": synchronous gradients are never stale");
    if (max_staleness >= 0) options.max_staleness = max_staleness;
    if (sync) options.max_staleness = 0;
    if (run_parameter_server(options)) return;

    const Mnist digits = data_dir.empty() ? Mnist{data::synthetic_digits(images),
                                                  data::synthetic_digits(1000, 2), images}
                                          : load_mnist(data_dir);
    const auto test = digits.test.batch(500);
    if (resolve_cluster().resolver->task_type() == "evaluator") {
      Model model = classifier();
      compile(model);
      evaluate_checkpoints(
          checkpoints, model, test, {.evaluated = [](auto&, int64_t step, auto& logs) {
            std::printf("step=%ld accuracy=%.4f\n", static_cast<long>(step), logs.at("accuracy"));
            std::fflush(stdout);
          }});
      return;
    }

    ParameterServerStrategy strategy(options);
    const auto scope = strategy.scope();
    Model model = classifier();
    compile(model);
    FitOptions fit{.epochs = epochs, .callbacks = {callbacks::TerminateOnNaN()}};
    if (!checkpoints.empty())
      fit.callbacks.push_back(
          callbacks::ModelCheckpoint(checkpoints + "/epoch-{epoch}.safetensors"));
    model.fit(digits.train.cache().shuffle(10'000).batch(batch), fit);
    if (strategy.is_chief())
      std::printf("%s test_accuracy=%.4f\n",
                  !options.max_staleness      ? "asynchronous"
                  : options.max_staleness > 0 ? "bounded"
                                              : "synchronous",
                  model.evaluate(test).at("accuracy"));
  });
}
