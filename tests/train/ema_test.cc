// Training whose optimizer keeps moving averages of the weights.
#include <gmock/gmock.h>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::bits;
using cohort::testing::classifier;
using cohort::testing::die_after;
using cohort::testing::error_of;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;

constexpr auto kSilent = Verbose::kSilent;

// The weights of classifier(), which are averaged.
Model averaged_classifier() {
  auto model = classifier();
  model.compile(
      {.optimizer = optim::SGD(0.5, {.momentum = 0.9, .ema = optim::EmaOptions{.momentum = 0.9}}),
       .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}
// Of all weights, or of the optimizer's averages of them.
std::string weights_of(const Model& model) {
  std::string all;
  for (const auto& variable : model.trainable_variables()) all += bytes_of(variable->value());
  return all;
}
std::string averages_of(const Model& model) {
  std::string all;
  for (const auto& variable : model.optimizer().variables())
    if (variable->name().starts_with("optimizer/average/")) all += bytes_of(variable->value());
  return all;
}

TEST(Ema, FitEndsWithTheAveragesBeforeCallbacksDo) {
  auto model = averaged_classifier();
  std::string trained, at_end;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training& training) { trained = weights_of(training.model()); };
  hooks->train_end = [&](Training& training) { at_end = weights_of(training.model()); };
  model.fit(points(40).batch(8), {.epochs = 2, .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_TRUE(weights_of(model) == averages_of(model));
  EXPECT_TRUE(at_end == averages_of(model));
  EXPECT_FALSE(trained == at_end);
}

TEST(Ema, AFitThatFailsLeavesWhatWasTrained) {
  auto model = averaged_classifier();
  std::string trained;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training& training) { trained = weights_of(training.model()); };
  EXPECT_THROW(model.fit(points(40).batch(8),
                         {.epochs = 2, .callbacks = {hooks, die_after(7)}, .verbose = kSilent}),
               Error);
  EXPECT_TRUE(weights_of(model) == trained);
}

TEST(Ema, AFitWithoutAStepLeavesTheWeightsAsTheyAre) {
  const std::string path = make_folder() + "/weights.safetensors";
  classifier().save_weights(path);
  auto model = averaged_classifier();
  const auto train = [&](int64_t epochs) {
    model.fit(points(40).batch(8), {.epochs = epochs, .verbose = kSilent});
  };
  train(1);
  model.load_weights(path);
  const std::string loaded = weights_of(model);
  train(0);
  EXPECT_TRUE(weights_of(model) == loaded);
}

TEST(Ema, AFitThatABackupLeavesNoStepEndsWithTheAverages) {
  const std::string folder = make_folder();
  const auto train = [&] {
    auto model = averaged_classifier();
    model.fit(points(40).batch(8),
              {.epochs = 2,
               .callbacks = {callbacks::BackupAndRestore(folder, {.delete_checkpoint = false})},
               .verbose = kSilent});
    return weights_of(model);
  };
  const std::string expected = train();
  EXPECT_TRUE(train() == expected);
}

TEST(SwapEMAWeights, ValidatesByTheAveragesAndTrainsTheWeights) {
  const auto test = points(50, /*seed=*/8).batch(10);
  const auto train = [&](Model& model, std::vector<CallbackPtr> callbacks) {
    return model.fit(points(40).batch(8), {.epochs = 3,
                                           .validation_data = test,
                                           .callbacks = std::move(callbacks),
                                           .verbose = kSilent});
  };
  auto swapped = averaged_classifier(), plain = averaged_classifier();
  const History by_averages = train(swapped, {callbacks::SwapEMAWeights()}),
                by_weights = train(plain, {});
  EXPECT_EQ(by_averages["loss"], by_weights["loss"]);
  EXPECT_TRUE(bits(swapped) == bits(plain));
  EXPECT_NE(by_averages["val_loss"], by_weights["val_loss"]);
  EXPECT_EQ(by_averages["val_loss"].back(), swapped.evaluate(test).at("loss"))
      << "fit ends with the averages";
}

TEST(SwapEMAWeights, NeedsAverages) {
  EXPECT_THAT(error_of(
                  [] {
                    classifier().fit(
                        points(8).batch(8),
                        {.callbacks = {callbacks::SwapEMAWeights()}, .verbose = kSilent});
                  },
                  Code::kFailedPrecondition),
              ::testing::HasSubstr("SwapEMAWeights: the optimizer keeps no averages"));
}

TEST(Ema, GoesOnFromABackupWithTheSameBits) {
  const std::string folder = make_folder();
  const auto train = [&](const std::string& name, int64_t die) {
    auto model = averaged_classifier();
    model.fit(points(40).shuffle(40, {.seed = 4}).batch(8),
              {.epochs = 3,
               .validation_data = points(10, 8).batch(5),
               .callbacks = {callbacks::SwapEMAWeights(),
                             callbacks::BackupAndRestore(folder + "/" + name, {.save_freq = 2}),
                             die_after(die)},
               .verbose = kSilent});
    return bits(model);
  };
  const std::string expected = train("whole", -1);
  for (const int64_t die : {3, 5, 12}) {
    const std::string name = str("broken-", die);
    EXPECT_THROW(train(name, die), Error);
    EXPECT_TRUE(train(name, -1) == expected) << "after step " << die;
  }
}

TEST(Ema, CheckpointsHaveTheAveragesAndWeightFilesWhatFitEndsWith) {
  const std::string folder = make_folder();
  auto model = averaged_classifier();
  model.fit(points(40).batch(8), {.epochs = 2, .verbose = kSilent});
  model.save_checkpoint(folder + "/all.safetensors");
  model.save_weights(folder + "/weights.safetensors");
  auto all = averaged_classifier(), weights = classifier();
  all.load_checkpoint(folder + "/all.safetensors");
  weights.load_weights(folder + "/weights.safetensors");
  EXPECT_TRUE(averages_of(all) == averages_of(model));
  EXPECT_TRUE(weights_of(weights) == averages_of(model));
}

}  // namespace
}  // namespace cohort
