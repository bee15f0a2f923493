#include <algorithm>

#include "tests/train/testing.h"

namespace cohort {
namespace {

// So that a convolution has something to add; but each digit has a place of its own, too. Trained
// until it only learns the digits that it sees by heart, a linear model is right about 90 % of the
// others.
TEST(SyntheticDigits, AreMoreThanALinearModelLearns) {
  set_global_seed(3);
  const auto digits = data::synthetic_digits(14'000);
  auto model = nn::Sequential({nn::Flatten(), nn::Dense(10)});
  model.compile({.optimizer = optim::Adam(0.01),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metrics::SparseCategoricalAccuracy("accuracy")}});
  const History history =
      model.fit(digits.take(12'000).shuffle(12'000).batch(500),
                {.epochs = 200,
                 .validation_data = digits.skip(12'000).batch(500),
                 .callbacks = {callbacks::EarlyStopping({.monitor = "val_loss", .patience = 10})},
                 .verbose = Verbose::kSilent});
  EXPECT_NE(history.stop_reason, "") << "it has not learned all that it can";
  EXPECT_LT(std::ranges::max(history["val_accuracy"]), 0.95);
  EXPECT_GT(history["val_accuracy"].back(), 0.5);
}

}  // namespace
}  // namespace cohort
