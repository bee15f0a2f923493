#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <regex>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/notice.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::die_after;
using cohort::testing::error_of;
using cohort::testing::fit;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;
using cohort::testing::script;

TEST(EarlyStopping, StopsOncePatienceIsOver) {
  const auto history = fit(classifier(), 8,
                           {script("val_loss", {5, 4, 4, 3, 3.5, 3.2, 2, 1}),
                            callbacks::EarlyStopping({.patience = 2})});
  EXPECT_EQ(history.epochs.size(), 6u);
  EXPECT_EQ(history.stop_reason, "val_loss has not improved for 2 epochs");
}

TEST(EarlyStopping, KnowsThatAccuracyRises) {
  EXPECT_EQ(fit(classifier(), 4,
                {script("val_accuracy", {.1, .2, .3, .2}),
                 callbacks::EarlyStopping({.monitor = "val_accuracy"})})
                .epochs.size(),
            4u);
}

TEST(EarlyStopping, IgnoresSmallChangesAndEarlyEpochs) {
  EXPECT_EQ(fit(classifier(), 6,
                {script("val_loss", {1, 2, 3, 2.95, 2, 1}),
                 callbacks::EarlyStopping({.min_delta = 0.1, .start_from_epoch = 2})})
                .epochs.size(),
            4u);
}

TEST(EarlyStopping, WaitsOnWhileABaselineIsNotReached) {
  const auto epochs = [](std::optional<double> baseline) {
    return fit(classifier(), 6,
               {script("val_loss", {5, 4, 4.5, 4.4, 3, 2}),
                callbacks::EarlyStopping({.patience = 2, .baseline = baseline})})
        .epochs.size();
  };
  EXPECT_EQ(epochs(std::nullopt), 4u);
  EXPECT_EQ(epochs(4.2), 4u) << "reached in the second epoch";
  EXPECT_EQ(epochs(1), 3u) << "an improvement alone ends no waiting";
}

TEST(EarlyStopping, DoesNotJudgeByTheFirstEpochAlone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(fit(classifier(), 3, {script("val_loss", {nan, 3, 4}), callbacks::EarlyStopping()})
                .epochs.size(),
            3u);
}

TEST(Callbacks, RefuseArgumentsThatMeanNothing) {
  const auto expect_refused = [](const std::function<void()>& make, const std::string& part) {
    const std::string message = error_of(make, Code::kInvalidArgument);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_refused([] { callbacks::EarlyStopping({.patience = -1}); },
                 "EarlyStopping: patience must not be negative, got -1");
  expect_refused([] { callbacks::ReduceLROnPlateau({.patience = -2}); }, "got -2 and 0");
  expect_refused([] { callbacks::ReduceLROnPlateau({.cooldown = -3}); }, "got 10 and -3");
  expect_refused([] { callbacks::LearningRateScheduler({}); }, "the schedule is empty");
}

TEST(EarlyStopping, SaysWhatWasNotReached) {
  const auto history = fit(classifier(), 4,
                           {script("val_loss", {5, 4, 4.5, 4}),
                            callbacks::EarlyStopping({.patience = 2, .baseline = 1.5})});
  EXPECT_EQ(history.stop_reason,
            "val_loss has not improved to beyond the baseline 1.5 for 3 epochs");
}

TEST(EarlyStopping, RestoresTheBestWeights) {
  auto model = classifier();
  Tensor best;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    if (training.epoch() == 1) best = training.model().variables()[0]->value().clone();
  };
  fit(model, 5,
      {script("val_loss", {5, 1, 2, 3, 4}), hooks,
       callbacks::EarlyStopping({.patience = 2, .restore_best_weights = true})});
  EXPECT_EQ(std::memcmp(model.variables()[0]->value().raw(), best.raw(), best.bytes()), 0);
}

TEST(Monitor, AnUnknownResultIsAnErrorThatListsTheKnownOnes) {
  EXPECT_EQ(error_of([] { fit(classifier(), 1, {callbacks::EarlyStopping({.monitor = "acc"})}); }),
            "there is no result \"acc\" to monitor; there are: accuracy, loss");
}

// Where nothing but a callback can add the result, which is known before anything is trained.
TEST(Monitor, WarnsOfAResultOfAValidationThatThereIsNot) {
  const auto said_before_the_first_step = [](std::optional<data::Dataset> validation,
                                             const CallbackPtr& callback) {
    std::string said;
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [&](Training&) { said = ::testing::internal::GetCapturedStderr(); };
    ::testing::internal::CaptureStderr();
    classifier().fit(points(8).batch(8), {.validation_data = std::move(validation),
                                          .callbacks = {hooks, script("val_loss", {1}), callback},
                                          .verbose = Verbose::kSilent});
    return said;
  };
  const auto warning = [](const char* name) {
    return str("warning: ", name, " monitors \"val_loss\", and fit() has no validation_data");
  };
  const std::string path = make_folder() + "/best";
  const auto best = [&](bool only) {
    return callbacks::ModelCheckpoint(path, {.save_best_only = only});
  };
  EXPECT_TRUE(said_before_the_first_step(std::nullopt, callbacks::EarlyStopping())
                  .starts_with(warning("EarlyStopping")));
  EXPECT_TRUE(said_before_the_first_step(std::nullopt, callbacks::ReduceLROnPlateau())
                  .starts_with(warning("ReduceLROnPlateau")));
  EXPECT_TRUE(
      said_before_the_first_step(std::nullopt, best(true)).starts_with(warning("ModelCheckpoint")));
  EXPECT_EQ(said_before_the_first_step(std::nullopt, best(false)), "");
  EXPECT_EQ(said_before_the_first_step(points(8).batch(8), callbacks::EarlyStopping()), "");
}

TEST(ModelCheckpoint, FillsInThePattern) {
  const std::string folder = make_folder();
  fit(classifier(), 2,
      {script("val_loss", {0.25, 12}),
       callbacks::ModelCheckpoint(folder + "/m-{epoch:02d}-{val_loss:.2f}-{batch}.safetensors")});
  EXPECT_TRUE(std::filesystem::exists(folder + "/m-01-0.25-1.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/m-02-12.00-1.safetensors"));
  EXPECT_NE(error_of([&] {
              fit(classifier(), 1, {callbacks::ModelCheckpoint(folder + "/{acc}")});
            }).find("\"acc\""),
            std::string::npos);
}

TEST(ModelCheckpoint, FormatsNumbersAsTheyAre) {
  const std::string folder = make_folder();
  fit(classifier(), 3,
      {script("val_loss", {0.25, 12, std::numeric_limits<double>::infinity()}),
       callbacks::ModelCheckpoint(folder + "/{epoch:03}-{val_loss:.12f}-{val_loss}")});
  EXPECT_TRUE(std::filesystem::exists(folder + "/001-0.250000000000-0.25"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/002-12.000000000000-12"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/003-inf-inf"));
}

TEST(ModelCheckpoint, RefusesAPatternThatItDoesNotKnow) {
  for (const char* path :
       {"m-{epoch:2s}", "m-{epoch", "m-epoch}", "{epoch:002d}", "{}", "{a:>3}"}) {
    const std::string message =
        error_of([&] { callbacks::ModelCheckpoint(path); }, Code::kInvalidArgument);
    EXPECT_NE(message.find(str("ModelCheckpoint: ", path, ": braces are for")), std::string::npos)
        << message;
  }
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(ModelCheckpoint, KeepsTheNewest) {
  const std::string folder = make_folder();
  fit(classifier(), 5,
      {script("val_loss", {1, 2, 3, 4, 5}),
       callbacks::ModelCheckpoint(folder + "/{epoch}", {.keep = 2})});
  EXPECT_EQ(files_in(folder), (std::vector<std::string>{"4", "5"}));
}

TEST(ModelCheckpoint, KeepsTheBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto kept = [](const std::vector<double>& values,
                       const callbacks::ModelCheckpointOptions& options) {
    const std::string folder = make_folder();
    fit(classifier(), static_cast<int64_t>(values.size()),
        {script(options.monitor, values),
         callbacks::ModelCheckpoint(folder + "/{epoch}", options)});
    return files_in(folder);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(kept({3, 2, 4, 1, 5}, {.save_best_only = true}), (Names{"1", "2", "4"}))
      << "each when it was";
  EXPECT_EQ(kept({3, 2, 4, 1, 5}, {.save_best_only = true, .keep = 1}), (Names{"4"}));
  EXPECT_EQ(kept({1, 3, nan, 2, 5}, {.save_best_only = true, .keep = 3}), (Names{"1", "2", "4"}));
  EXPECT_EQ(
      kept({.1, .9, .5, .7, .6, .8},
           {.monitor = "s", .save_best_only = true, .mode = callbacks::Mode::kMax, .keep = 3}),
      (Names{"2", "4", "6"}));
  EXPECT_EQ(kept({2, 2, 2}, {.save_best_only = true, .keep = 2}), (Names{"1", "2"}))
      << "what is as good is no better";
  EXPECT_EQ(kept({3, 1, 2.5}, {.save_best_only = true, .keep = 3, .initial_value_threshold = 2.75}),
            (Names{"2", "3"}));
}

TEST(ModelCheckpoint, AWorseOneDoesNotTakeTheNameOfABetterOne) {
  const std::string folder = make_folder();
  auto model = classifier();
  std::string best;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    if (training.epoch() == 1) best = cohort::testing::bits(training.model());
  };
  fit(model, 4,
      {script("val_loss", {3, 1, 2, 4}), hooks,
       callbacks::ModelCheckpoint(folder + "/best", {.save_best_only = true, .keep = 3})});
  model.load_checkpoint(folder + "/best");
  EXPECT_EQ(cohort::testing::bits(model), best);
}

TEST(ModelCheckpoint, KnowsTheBestFilesAfterARestart) {
  const std::string folder = make_folder();
  const auto run = [&](int64_t die) {
    fit(classifier(), 5,
        {script("val_loss", {1, 4, 2, 3, 5}),
         callbacks::ModelCheckpoint(folder + "/best/{epoch}", {.save_best_only = true, .keep = 2}),
         die_after(die), callbacks::BackupAndRestore(folder + "/backup")});
  };
  EXPECT_THROW(run(3), Error);
  EXPECT_EQ(files_in(folder + "/best"), (std::vector<std::string>{"1", "2"}));
  run(-1);
  EXPECT_EQ(files_in(folder + "/best"), (std::vector<std::string>{"1", "3"}));
}

TEST(ModelCheckpoint, SavesWhatIsBetterThanAThreshold) {
  const std::string folder = make_folder();
  fit(classifier(), 3,
      {script("val_loss", {3, 2, 1.5}),
       callbacks::ModelCheckpoint(folder + "/{epoch}",
                                  {.save_best_only = true, .initial_value_threshold = 2})});
  EXPECT_FALSE(std::filesystem::exists(folder + "/1"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/2"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/3"));
}

// A threshold is no value that was reached.
TEST(ModelCheckpoint, KeepsTheBestValueWithoutTheThreshold) {
  const std::string folder = make_folder();
  const auto checkpoint = [&](double threshold) {
    return callbacks::ModelCheckpoint(
        folder + "/{epoch}", {.save_best_only = true, .initial_value_threshold = threshold});
  };
  const auto run = [&](double threshold, int64_t die) {
    fit(classifier(), 3,
        {script("val_loss", {3, 2, 4}), checkpoint(threshold), die_after(die),
         callbacks::BackupAndRestore(folder)});
  };
  EXPECT_THROW(run(1, 2), Error);
  run(2.5, -1);
  EXPECT_FALSE(std::filesystem::exists(folder + "/1"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/2"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/3"));
}

TEST(ModelCheckpoint, RefusesToWaitForAResultThatNoBatchHas) {
  const std::string message = error_of(
      [] { callbacks::ModelCheckpoint("best", {.save_best_only = true, .save_freq = 2}); });
  EXPECT_NE(message.find("monitor \"val_loss\" is known after an epoch only"), std::string::npos)
      << message;
  callbacks::ModelCheckpoint("best", {.monitor = "loss", .save_best_only = true, .save_freq = 2});
  callbacks::ModelCheckpoint("all", {.save_freq = 2});
}

TEST(ModelCheckpoint, SavesWeightsAloneAfterSoManyBatches) {
  const std::string folder = make_folder();
  fit(classifier(), 5,
      {callbacks::ModelCheckpoint(folder + "/{epoch}",
                                  {.save_weights_only = true, .save_freq = 2})});
  EXPECT_EQ(read_safetensors(folder + "/4").tensors.size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder + "/5"));
}

TEST(CSVLogger, WritesALineForEachEpoch) {
  const std::string path = make_folder() + "/log.csv";
  const auto logger = [&](bool append) { return callbacks::CSVLogger(path, {.append = append}); };
  auto only_a = std::make_shared<Hooks>();
  only_a->epoch_end = [](Training& training, Logs& logs) {
    logs = {{"a", 0.5}};
    if (training.epoch() == 0) logs["b"] = 1;
  };
  fit(classifier(), 2, {only_a, logger(false)});
  fit(classifier(), 1, {only_a, logger(true)});
  EXPECT_EQ(read_file(path), "epoch,a,b\n0,0.5,1\n1,0.5,NA\n0,0.5,1\n");
}

TEST(CSVLogger, GoesOnWhereABackupWasMade) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, bool append, int64_t die) {
    const std::string path = folder + "/" + name + ".csv";
    classifier().fit(points(40).batch(8),
                     {.epochs = 3,
                      .callbacks = {callbacks::BackupAndRestore(folder + "/" + name),
                                    callbacks::CSVLogger(path, {.append = append}), die_after(die)},
                      .verbose = Verbose::kSilent});
    return read_file(path);
  };
  const std::string expected = run("whole", false, -1);
  EXPECT_EQ(std::ranges::count(expected, '\n'), 4);
  EXPECT_EQ(run("whole", false, -1), expected) << "a file of before is replaced";
  for (const bool append : {false, true})
    for (const int64_t die : {3, 8, 13}) {
      const std::string name = str(append, die);
      EXPECT_THROW(run(name, append, die), Error);
      // As when a line was written and the backup after it was not.
      if (die == 8) std::ofstream(str(folder, "/", name, ".csv"), std::ios::app) << "1,0,0\n";
      EXPECT_EQ(run(name, append, -1), expected) << name;
    }
}

TEST(CSVLogger, SeparatesByTheCharacterAskedFor) {
  const std::string path = make_folder() + "/log.csv";
  auto only_a = std::make_shared<Hooks>();
  only_a->epoch_end = [](Training&, Logs& logs) { logs = {{"a", 0.5}}; };
  fit(classifier(), 1, {only_a, callbacks::CSVLogger(path, {.separator = ';'})});
  EXPECT_EQ(read_file(path), "epoch;a\n0;0.5\n");
}

TEST(CSVLogger, HasColumnsForAValidationThatTheFirstEpochLacks) {
  const std::string path = make_folder() + "/log.csv";
  classifier().fit(points(8).batch(8), {.epochs = 2,
                                        .validation_data = points(8).batch(8),
                                        .validation_freq = 2,
                                        .callbacks = {callbacks::CSVLogger(path)},
                                        .verbose = Verbose::kSilent});
  const std::string text = read_file(path), missing = ",NA,NA\n1,";
  EXPECT_TRUE(text.starts_with("epoch,accuracy,loss,val_accuracy,val_loss\n0,")) << text;
  const size_t second = text.find(missing);
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_EQ(text.find("NA", second + missing.size()), std::string::npos) << text;
}

TEST(CSVLogger, CanBeUsedAgainAfterAnError) {
  const std::string path = make_folder() + "/log.csv";
  auto breaks = std::make_shared<Hooks>();
  breaks->batch_end = [](Training&) { fail(Code::kAborted, "the power is gone"); };
  const CallbackPtr logger = callbacks::CSVLogger(path);
  EXPECT_THROW(fit(classifier(), 1, {breaks, logger}), Error);
  fit(classifier(), 1, {script("a", {0.5}), logger});
  EXPECT_TRUE(read_file(path).starts_with("epoch,a,accuracy,loss\n0,0.5,")) << read_file(path);
}

TEST(CSVLogger, MakesTheFolderOfItsFile) {
  const std::string path = make_folder() + "/of/its/own/log.csv";
  fit(classifier(), 1, {callbacks::CSVLogger(path)});
  EXPECT_TRUE(read_file(path).starts_with("epoch,")) << read_file(path);
}

TEST(CSVLogger, NamesAPathThatCannotBeWritten) {
  const std::string folder = make_folder();
  const auto expect = [&](const std::string& path, Code code) {
    try {
      fit(classifier(), 1, {callbacks::CSVLogger(path)});
      FAIL() << "wrote to " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(error.message().find(folder), std::string::npos) << error.message();
    }
  };
  expect(folder, Code::kInvalidArgument);
  write_file_atomically(folder + "/file", "");
  expect(folder + "/file/log.csv", Code::kNotFound);
}

TEST(LearningRateScheduler, SetsTheRateOfEachEpoch) {
  auto model = classifier(0.1);
  const auto history =
      fit(model, 3, {callbacks::LearningRateScheduler([](int64_t epoch, double rate) {
            return epoch == 0 ? rate : rate / 2;
          })});
  EXPECT_NEAR(history["learning_rate"][0], 0.1, 1e-7);
  EXPECT_NEAR(history["learning_rate"][2], 0.025, 1e-7);
  EXPECT_NEAR(model.optimizer().learning_rate(), 0.025, 1e-7);
}

TEST(ReduceLROnPlateau, ReducesAfterPatienceAndThenCoolsDown) {
  auto model = classifier(1.0);
  const auto history = fit(
      model, 8,
      {script("val_loss", {1, 1, 1, 1, 1, 1, 1, 1}),
       callbacks::ReduceLROnPlateau({.factor = 0.5, .patience = 2, .cooldown = 3, .min_lr = 0.3})});
  // Patience counts from the last epoch of the cooldown on, as in Keras.
  EXPECT_EQ(history["learning_rate"], (std::vector<double>{1, 1, 1, .5, .5, .5, .5, .3}));
}

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

TEST(Callbacks, APathThatCannotBeWrittenToIsFoundBeforeTheFirstStep) {
  const std::string folder = make_folder(), file = folder + "/file";
  std::ofstream(file) << "not a folder";
  const std::map<std::string, CallbackPtr> all = {
      {"BackupAndRestore", callbacks::BackupAndRestore(file)},
      {"ModelCheckpoint", callbacks::ModelCheckpoint(file + "/{epoch}/weights")},
      {"TensorBoard", callbacks::TensorBoard(file + "/logs")}};
  for (const auto& [name, callback] : all) {
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [](Training&) { ADD_FAILURE() << "it trains"; };
    const std::string error = error_of(
        [&] {
          fit(classifier(), 1, {hooks, callback});
        },
        Code::kNotFound);
    EXPECT_TRUE(error.starts_with(name + ": cannot create the folder " + file)) << error;
  }
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
  EXPECT_FALSE(std::filesystem::exists(backup)) << "what was refused before no longer counts";
}

std::string only_file(const std::string& folder) {
  return read_file(std::filesystem::directory_iterator(folder)->path().string());
}

TEST(TensorBoard, WritesTrainingAndValidationApart) {
  const std::string folder = make_folder();
  auto model = classifier();
  model.fit(points(8).batch(4), {.epochs = 2,
                                 .validation_data = points(4).batch(4),
                                 .callbacks = {callbacks::TensorBoard(folder, {.update_freq = 1})},
                                 .verbose = Verbose::kSilent});
  const std::string train = only_file(folder + "/train"),
                    validation = only_file(folder + "/validation");
  for (const char* tag : {"epoch_loss", "epoch_accuracy"}) {
    EXPECT_NE(train.find(tag), std::string::npos) << tag;
    EXPECT_NE(validation.find(tag), std::string::npos) << tag;
  }
  EXPECT_NE(train.find("batch_loss"), std::string::npos);
  EXPECT_EQ(validation.find("val_"), std::string::npos);
}

TEST(ProgressBar, WritesPlainLinesWhereThereIsNoTerminal) {
  std::ostringstream out;
  fit(classifier(), 1, {callbacks::ProgressBar({.out = &out, .live = false})});
  const std::string text = out.str();
  EXPECT_EQ(text.rfind("Epoch 1/1\n1/1 [==============================] - ", 0), 0u) << text;
  EXPECT_NE(text.find(" - accuracy: "), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(ProgressBar, DrawsOverItsLineOnATerminal) {
  std::ostringstream out;
  fit(classifier(), 2,
      {callbacks::ProgressBar({.out = &out, .live = true}), script("loss", {0.5, 0.25}),
       callbacks::EarlyStopping({.monitor = "accuracy", .start_from_epoch = 5})});
  EXPECT_EQ(out.str().rfind("Epoch 1/2\n\r1/1 [", 0), 0u) << out.str();
  EXPECT_NE(out.str().find("\x1b[K\nEpoch 2/2\n"), std::string::npos) << out.str();
}

TEST(ProgressBar, StandsBelowNotices) {
  std::ostringstream out;
  std::string before, after;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training&) {
    before = out.str();
    print_notice("warning: slow\n");
    after = out.str();
  };
  ::testing::internal::CaptureStderr();
  fit(classifier(), 1, {callbacks::ProgressBar({.out = &out, .live = true}), hooks});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: slow\n");
  const std::string drawn = before.substr(before.rfind('\r'));
  EXPECT_TRUE(drawn.starts_with("\r1/1 [")) << before;
  EXPECT_EQ(after, before + "\r\x1b[K" + drawn);
}

TEST(ProgressBar, EndsItsLineWhenAnErrorEndsTraining) {
  std::ostringstream out;
  const auto train = [](const CallbackPtr& bar, int64_t die) {
    classifier().fit(points(40).batch(8),
                     {.callbacks = {bar, die_after(die)}, .verbose = Verbose::kSilent});
  };
  EXPECT_THROW(train(callbacks::ProgressBar({.out = &out, .live = true}), 1), Error);
  EXPECT_NE(out.str().find("1/5 ["), std::string::npos) << out.str();
  EXPECT_TRUE(out.str().ends_with("\x1b[K\n")) << out.str();

  out.str("");
  const CallbackPtr kept = callbacks::ProgressBar({.out = &out, .live = true});
  EXPECT_THROW(train(kept, 1), Error);
  train(kept, -1);
  EXPECT_NE(out.str().find("\x1b[K\nEpoch 1/1\n"), std::string::npos) << out.str();
}

// Standard output as a terminal of so many columns, until it is closed.
class Terminal {
 public:
  explicit Terminal(unsigned short columns)
      : master_(posix_openpt(O_RDWR | O_NOCTTY)), stdout_(dup(STDOUT_FILENO)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0)
      fail(Code::kUnavailable, "there are no pseudo-terminals");
    const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (slave < 0 || ioctl(slave, TIOCSWINSZ, &size) != 0)
      fail(Code::kUnavailable, "there is no terminal to write to");
    flush();
    dup2(slave, STDOUT_FILENO);
    close(slave);
    setenv("TERM", "xterm", 1);
  }
  ~Terminal() {
    give_back();
    close(master_);
  }

  // What has been written to it.
  std::string close_and_read() {
    give_back();
    std::string text(1 << 16, '\0');
    size_t size = 0;
    for (ssize_t count; (count = read(master_, &text[size], text.size() - size)) > 0;)
      size += static_cast<size_t>(count);
    text.resize(size);
    return text;
  }

 private:
  static void flush() {
    std::cout.flush();
    std::fflush(stdout);
  }
  void give_back() {
    if (stdout_ < 0) return;
    flush();
    dup2(stdout_, STDOUT_FILENO);
    close(stdout_);
    stdout_ = -1;
  }

  const int master_;
  int stdout_;
};

TEST(ProgressBar, DrawsNoWiderThanTheTerminal) {
  Terminal terminal(60);
  classifier().fit(
      points(40).batch(8),
      {.epochs = 2, .callbacks = {callbacks::ProgressBar()}, .verbose = Verbose::kSilent});
  const std::string text = terminal.close_and_read();
  // A drawing is what is between two carriage returns; the last one of an epoch stays.
  static const std::regex drawing(R"(\r([^\r\n]*)\x1b\[K(\r\n)?)");
  int drawn_over = 0, whole = 0;
  for (std::sregex_iterator each(text.begin(), text.end(), drawing), end; each != end; ++each) {
    if ((*each)[2].matched) {
      ++whole;
      EXPECT_NE((*each)[1].str().find(" - loss: "), std::string::npos) << text;
    } else {
      ++drawn_over;
      EXPECT_LT((*each)[1].length(), 60) << text;
    }
  }
  EXPECT_EQ(whole, 2) << text;
  EXPECT_GE(drawn_over, 2) << "the first batch of each epoch: " << text;
}

TEST(ProgressBar, IsNotLiveElsewhereBecauseStandardOutputIsATerminal) {
  Terminal terminal(80);
  std::ostringstream out;
  fit(classifier(), 1, {callbacks::ProgressBar({.out = &out})});
  EXPECT_EQ(terminal.close_and_read(), "");
  EXPECT_TRUE(out.str().starts_with("Epoch 1/1\n1/1 [")) << out.str();
}

}  // namespace
}  // namespace cohort
