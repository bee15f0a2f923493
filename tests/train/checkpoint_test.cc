#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::bits;
using cohort::testing::classifier;
using cohort::testing::error_of;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;

constexpr auto kSilent = Verbose::kSilent;

TEST(Checkpoint, HoldsWeightsAndTheOptimizersState) {
  const std::string path = make_folder() + "/model.safetensors";
  auto trained = classifier();
  trained.fit(points(40).batch(8), {.verbose = kSilent});
  trained.save_checkpoint(path, {{"note", "first"}});

  auto fresh = classifier();
  EXPECT_EQ(fresh.load_checkpoint(path), (Metadata{{"note", "first"}}));
  EXPECT_EQ(bits(fresh), bits(trained));
}

TEST(Checkpoint, WeightsAloneHaveKerasNames) {
  const std::string path = make_folder() + "/weights.safetensors";
  auto model = classifier();
  model.save_weights(path);
  const Safetensors file = read_safetensors(path);
  EXPECT_EQ(file.tensors.at("dense/kernel").shape(), (Shape{2, 8}));
  EXPECT_EQ(file.tensors.at("dense_1/bias").shape(), (Shape{2}));
  EXPECT_EQ(file.tensors.size(), 4u);
  model.load_weights(path);
}

TEST(Checkpoint, WhatDoesNotFitIsListedAndChangesNothing) {
  const std::string path = make_folder() + "/other.safetensors";
  write_safetensors(path, {.tensors = {{"dense/kernel", Tensor::zeros(DType::kFloat32, {2, 8})},
                                       {"dense/bias", Tensor::zeros(DType::kFloat32, {9})},
                                       {"extra", Tensor::zeros(DType::kFloat32, {1})},
                                       {"dense_1/bias", Tensor::zeros(DType::kFloat32, {2})}}});
  auto model = classifier();
  const std::string before = bits(model);
  EXPECT_EQ(error_of([&] { model.load_weights(path); }),
            path +
                " does not fit the variables:\n"
                "  dense/bias is float32[8], in the file float32[9]\n"
                "  missing: dense_1/kernel float32[8,2]\n"
                "  unexpected: extra float32[1]");
  EXPECT_EQ(bits(model), before);
}

TEST(Checkpoint, MissingAndUnexpectedNamesMayBeIgnored) {
  const std::string path = make_folder() + "/part.safetensors";
  write_safetensors(path, {.tensors = {{"dense_1/bias", Tensor::full(DType::kFloat32, {2}, 7)},
                                       {"extra", Tensor::zeros(DType::kFloat32, {1})}}});
  auto model = classifier();
  model.load_weights(path, {.ignore_missing = true, .ignore_unexpected = true});
  EXPECT_EQ(model.variables().back()->value().data<float>()[1], 7);
}

TEST(Checkpoint, MovesBetweenNumbersOfReplicas) {
  const std::string path = make_folder() + "/model.safetensors";
  auto alone = classifier();
  alone.fit(points(40).batch(8), {.verbose = kSilent});
  alone.save_checkpoint(path);
  set_logical_cpus(2, 1);
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto scope = strategy.scope();
  auto mirrored = classifier();
  mirrored.load_checkpoint(path);
  EXPECT_EQ(bits(mirrored), bits(alone));
}

// A network with dropout, in which the step number matters too.
Model with_dropout() {
  set_global_seed(3);
  auto model =
      nn::Sequential({nn::Dense(8, {.activation = nn::relu}), nn::Dropout(0.3), nn::Dense(2)});
  testing::compile(model);
  return model;
}

class Break : public std::exception {};

TEST(BackupAndRestore, ContinuesWithTheSameBitsAfterABreakAnywhere) {
  const auto train = points(50).shuffle(20, {.seed = 9}).batch(8);
  for (const bool endless : {false, true}) {
    for (const int64_t break_at : {2, 7, 13}) {
      SCOPED_TRACE(::testing::Message()
                   << "break after step " << break_at << ", endless " << endless);
      const std::string folder = make_folder();
      const auto fit = [&](Model model, CallbackPtr extra) {
        FitOptions options{.epochs = 3, .verbose = kSilent};
        if (endless) options.steps_per_epoch = 5;
        options.callbacks = {callbacks::BackupAndRestore(folder, {.save_freq = 2}), extra};
        return std::pair(model.fit(endless ? train.repeat() : train, options), bits(model));
      };
      const auto nothing = std::make_shared<Hooks>();
      const auto [expected, expected_bits] = fit(with_dropout(), nothing);

      auto breaks = std::make_shared<Hooks>();
      breaks->batch_end = [&](Training& training) {
        if (training.total_steps() == break_at) throw Break();
      };
      EXPECT_THROW(fit(with_dropout(), breaks), Break);

      const auto [rest, rest_bits] = fit(with_dropout(), nothing);
      EXPECT_EQ(rest_bits, expected_bits);
      EXPECT_EQ(rest["loss"].back(), expected["loss"].back());
      EXPECT_EQ(rest["accuracy"].back(), expected["accuracy"].back());
    }
  }
}

TEST(BackupAndRestore, DeletesTheBackupWhenDone) {
  const std::string folder = make_folder();
  with_dropout().fit(points(20).batch(10),
                     {.callbacks = {callbacks::BackupAndRestore(folder)}, .verbose = kSilent});
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(BackupAndRestore, RefusesACheckpointThatIsNoBackup) {
  const std::string folder = make_folder();
  classifier().save_checkpoint(folder + "/backup.safetensors");
  EXPECT_NE(error_of(
                [&] {
                  classifier().fit(
                      points(20).batch(10),
                      {.callbacks = {callbacks::BackupAndRestore(folder)}, .verbose = kSilent});
                },
                Code::kDataLoss)
                .find("not a backup"),
            std::string::npos);
}

}  // namespace
}  // namespace cohort
