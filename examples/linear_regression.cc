// Fits a line (a plane, ...) to the numbers of a CSV file, or to generated ones.
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

// label = 3 a - 2 b + 0.5, and a little noise.
data::Dataset generated(int64_t rows) {
  Tensor features(DType::kFloat32, {rows, 2}), labels(DType::kFloat32, {rows});
  RandomStream random(/*seed=*/1);
  for (int64_t i = 0; i < rows; ++i) {
    const double a = 2 * random.uniform() - 1, b = 2 * random.uniform() - 1,
                 noise = 0.1 * (random.uniform() - 0.5);
    features.data<float>()[2 * i] = static_cast<float>(a);
    features.data<float>()[2 * i + 1] = static_cast<float>(b);
    labels.data<float>()[i] = static_cast<float>(3 * a - 2 * b + 0.5 + noise);
  }
  return data::from_tensor_slices({{"features", features}, {"label", labels}});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Linear regression.");
    const auto path =
        flags.text("data", "", "CSV file with a header, columns of about the same size");
    const auto label = flags.text("label", "-1", "the column to predict: its name or number",
                                  {.may_be_empty = false});
    const auto epochs = flags.integer("epochs", 20, "passes over the data", {.min = 1});
    flags.finish();
    if (path.empty() && flags.is_given("label"))
      invalid("--label=", label, " has no use without --data");

    const auto rows =
        path.empty() ? generated(1'000)
                     : data::csv(path, {.label_column = label, .label_dtype = DType::kFloat32});
    auto model = nn::Sequential({nn::Dense(1)});
    model.compile({.optimizer = optim::Adam(0.05),
                   .loss = losses::MeanSquaredError(),
                   .metrics = {metrics::MeanAbsoluteError()}});
    model.fit(rows.shuffle(10'000).batch(32),
              {.epochs = epochs, .callbacks = {callbacks::TerminateOnNaN()}});
    for (const auto& variable : model.variables()) {
      std::printf("%s = %s\n", variable->name().c_str(), to_string(variable->value()).c_str());
    }
    std::printf("mean_squared_error=%.6f\n", model.evaluate(rows.batch(500)).at("loss"));
  });
}
