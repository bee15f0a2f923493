// Losses and weights that are not finite numbers any more.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::error_of;
using cohort::testing::fit;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;

// Makes weights that are no numbers, in the second step of the second epoch.
CallbackPtr diverge() {
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_begin = [](Training& training) {
    if (training.epoch() != 1 || training.step() != 1) return;
    const auto variable = training.model().variables()[0];
    variable->assign(Tensor::full(DType::kFloat32, variable->spec().shape,
                                  std::numeric_limits<double>::quiet_NaN()));
  };
  return hooks;
}

void expect_finite_weights(const std::string& file) {
  auto loaded = classifier();
  loaded.load_checkpoint(file);
  for (const auto& variable : loaded.variables()) {
    const Tensor values = variable->value();
    for (const float value : values.values<float>()) ASSERT_TRUE(std::isfinite(value)) << file;
  }
}

TEST(TerminateOnNaN, EndsTrainingAtOnceWithAnError) {
  auto model = classifier();
  EXPECT_EQ(error_of(
                [&] {
                  model.fit(points(40).batch(8),
                            {.epochs = 3,
                             .callbacks = {diverge(), callbacks::TerminateOnNaN()},
                             .verbose = Verbose::kSilent});
                },
                Code::kOutOfRange),
            "fit: epoch 2, step 3: the loss is nan after step 2");
}

// Whoever trains with several replicas sees the loss of all of them.
TEST(Divergence, EndsTrainingWithItsEpochUnlessItIsAllowed) {
  set_logical_cpus(2, 1);
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(str(replicas, " replicas"));
    MirroredStrategy strategy({.devices = replicas == 1
                                              ? std::vector<std::string>{"cpu:0"}
                                              : std::vector<std::string>{"cpu:0", "cpu:1"}});
    const auto scope = strategy.scope();
    std::vector<int64_t> ended;
    auto hooks = std::make_shared<Hooks>();
    hooks->epoch_end = [&](Training& training, Logs&) { ended.push_back(training.epoch()); };
    FitOptions options{.epochs = 3,
                       .validation_data = points(8).batch(8),
                       .callbacks = {diverge(), hooks},
                       .verbose = Verbose::kSilent};
    EXPECT_EQ(error_of([&] { classifier().fit(points(40).batch(8), options); }, Code::kOutOfRange),
              "fit: epoch 2: the loss is nan; TerminateOnNaN tells after which step, and "
              "allow_nan_loss trains on");
    EXPECT_EQ(ended, std::vector<int64_t>{0});
    options.allow_nan_loss = true;
    const auto history = classifier().fit(points(40).batch(8), options);
    EXPECT_EQ(history.epochs, (std::vector<int64_t>{0, 1, 2}));
    EXPECT_TRUE(std::isfinite(history["loss"][0]));
    EXPECT_TRUE(std::isnan(history["loss"][2]));
  }
  set_logical_cpus(1);
}

// What was saved before the loss was no number any more is still there, and whole.
TEST(Divergence, LosesNothingThatWasSaved) {
  for (const bool terminates : {true, false}) {
    for (const bool allowed : {true, false}) {
      const std::string folder = make_folder();
      std::vector<CallbackPtr> all = {
          diverge(), callbacks::BackupAndRestore(folder, {.save_freq = 1}),
          callbacks::ModelCheckpoint(folder + "/last"),
          callbacks::ModelCheckpoint(folder + "/best",
                                     {.monitor = "loss", .save_best_only = true})};
      if (terminates) all.push_back(callbacks::TerminateOnNaN());
      auto model = classifier();
      const auto fit = [&] {
        model.fit(points(40).batch(8), {.epochs = 3,
                                        .callbacks = all,
                                        .verbose = Verbose::kSilent,
                                        .allow_nan_loss = allowed});
      };
      if (terminates || !allowed)
        EXPECT_THROW(fit(), Error);
      else
        fit();
      for (const char* file : {"/backup.safetensors", "/last", "/best"})
        expect_finite_weights(folder + file);
    }
  }
}

TEST(Divergence, OfValidationIsToldAndTrainingGoesOn) {
  const auto unknown = data::from_tensor_slices({{"x", Tensor::from<float>({NAN, 0}, {1, 2})},
                                                 {"label", Tensor::from<int32_t>({0}, {1})}})
                           .batch(1);
  const std::string warning = "warning: fit: epoch 2: the loss of validation is ";
  for (const bool allowed : {false, true}) {
    auto model = classifier();
    ::testing::internal::CaptureStderr();
    const auto history = model.fit(points(8).batch(8), {.epochs = 2,
                                                        .validation_data = unknown,
                                                        .verbose = Verbose::kSilent,
                                                        .allow_nan_loss = allowed});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find(warning) == std::string::npos, allowed) << said;
    EXPECT_TRUE(std::isnan(history["val_loss"][1]));
    EXPECT_TRUE(std::isfinite(history["loss"][1]));
  }
}

// The loss of a step is that of the weights before it.
TEST(Divergence, OfTheLastStepsUpdateLosesNothingEither) {
  const std::string folder = make_folder();
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [](Training& training) {
    if (training.epoch() != 1 || training.step() != 5) return;
    const auto variable = training.model().variables()[0];
    Tensor value = variable->value();
    value.data<float>()[3] = std::numeric_limits<float>::infinity();
    variable->assign(value);
  };
  auto model = classifier();
  ::testing::internal::CaptureStderr();
  model.fit(points(40).batch(8),
            {.epochs = 2,
             .callbacks = {hooks, callbacks::BackupAndRestore(folder, {.save_freq = 1}),
                           callbacks::ModelCheckpoint(folder + "/last")},
             .verbose = Verbose::kSilent});
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* file : {"/backup.safetensors", "/last"}) expect_finite_weights(folder + file);
  for (const char* saver : {"ModelCheckpoint", "BackupAndRestore"})
    EXPECT_NE(said.find(str("warning: ", saver,
                            " does not save in epoch 2 after step 5: dense/kernel is not a finite "
                            "number any more\n")),
              std::string::npos)
        << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 2) << "each says so once: " << said;
}

// An epoch that is stopped is not saved; the update before it is looked at nevertheless.
TEST(Divergence, OfTheUpdateAfterWhichTrainingStopsKeepsTheBackup) {
  const std::string folder = make_folder(), backup = folder + "/backup.safetensors";
  bool breaks = true;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    if (!breaks || training.epoch() != 1) return;
    const auto variable = training.model().variables()[0];
    variable->assign(Tensor::full(DType::kFloat32, variable->spec().shape,
                                  std::numeric_limits<double>::infinity()));
    training.stop("enough");
  };
  const CallbackPtr saver = callbacks::BackupAndRestore(folder);
  const auto fit = [&] { return cohort::fit(classifier(), 3, {hooks, saver}); };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(fit().epochs, (std::vector<int64_t>{0, 1}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "warning: BackupAndRestore does not save after epoch 2: dense/kernel is not a finite "
            "number any more\n");
  expect_finite_weights(backup);
  breaks = false;
  EXPECT_EQ(fit().epochs, (std::vector<int64_t>{1, 2})) << "from the end of the first epoch";
  EXPECT_FALSE(std::filesystem::exists(backup)) << "what was rejected before no longer counts";
}

}  // namespace
}  // namespace cohort
