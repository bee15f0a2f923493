#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "core/base/file.h"
#include "tests/testing/event_fields.h"
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
  const double nan = std::nan("");
  expect_refused([&] { callbacks::EarlyStopping({.min_delta = nan}); },
                 "min_delta, by which \"val_loss\" must become better, must be finite, got nan");
  expect_refused([&] { callbacks::ReduceLROnPlateau({.min_delta = nan}); }, "must be finite");
  expect_refused([&] { callbacks::EarlyStopping({.baseline = nan}); }, "the baseline is NaN");
  expect_refused([&] { callbacks::ModelCheckpoint("best", {.initial_value_threshold = nan}); },
                 "the value that \"val_loss\" must beat is NaN");
  expect_refused([] { callbacks::ReduceLROnPlateau({.patience = -2}); }, "got -2 and 0");
  expect_refused([] { callbacks::ReduceLROnPlateau({.cooldown = -3}); }, "got 10 and -3");
  for (const double limit : {0.0, -1.0, nan})
    expect_refused([&] { callbacks::TimeLimit(std::chrono::duration<double>(limit)); },
                   "TimeLimit: the limit must be more than 0 s, got ");
  for (const double seconds : {0.0, -1.0, nan}) {
    const std::chrono::duration<double> interval(seconds);
    expect_refused([&] { callbacks::ModelCheckpoint("all", {.save_interval = interval}); },
                   "ModelCheckpoint: save_interval must be more than 0 s, got ");
    expect_refused([&] { callbacks::BackupAndRestore("backup", {.save_interval = interval}); },
                   "BackupAndRestore: save_interval must be more than 0 s, got ");
  }
  expect_refused([] { callbacks::LearningRateScheduler({}); }, "the schedule is empty");
  expect_refused([] { callbacks::TensorBoard(""); }, "TensorBoard: the directory is empty");
  expect_refused([] { callbacks::BackupAndRestore(""); },
                 "BackupAndRestore: the directory is empty");
  for (const char* path : {"", "folder/"})
    expect_refused([path] { callbacks::CSVLogger(path); },
                   str("CSVLogger: the path \"", path, "\" ends without the name of a file"));
  for (const char separator : {'"', '\n', '\r', '.', '-', '7', 'e'})
    expect_refused([&] { callbacks::CSVLogger("log.csv", {.separator = separator}); },
                   str("CSVLogger: the separator, character ", int{separator}));
}

TEST(TimeLimit, EndsAnEpochInItsMiddleAsAnyOther) {
  auto hooks = std::make_shared<Hooks>();
  int trained = 0;
  bool was_validated = false, has_ended = false;
  hooks->batch_end = [&](Training&) {
    ++trained;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  hooks->epoch_end = [&](Training&, Logs& logs) { was_validated = logs.contains("val_loss"); };
  hooks->train_end = [&](Training& training) { has_ended = !training.interrupted(); };
  auto model = classifier();
  const History history =
      model.fit(points(64).batch(8),
                {.epochs = 3,
                 .validation_data = points(8).batch(8),
                 .callbacks = {hooks, callbacks::TimeLimit(std::chrono::milliseconds(1))},
                 .verbose = Verbose::kSilent});
  EXPECT_EQ(trained, 1);
  EXPECT_EQ(history.stop_reason, "the time limit of 0.001 s is over");
  EXPECT_EQ(history.epochs.size(), 1u);
  EXPECT_TRUE(was_validated);
  EXPECT_TRUE(has_ended);
}

TEST(TimeLimit, EndsWithTheEpochInWhoseValidationItIsOver) {
  constexpr std::chrono::seconds kLimit(1);
  auto hooks = std::make_shared<Hooks>();
  hooks->validation_end = [&](Training& training) {
    std::this_thread::sleep_for(kLimit - training.elapsed());
  };
  auto model = classifier();
  const History history =
      model.fit(points(64).batch(8), {.epochs = 3,
                                      .validation_data = points(8).batch(8),
                                      .callbacks = {hooks, callbacks::TimeLimit(kLimit)},
                                      .verbose = Verbose::kSilent});
  EXPECT_EQ(history.epochs.size(), 1u);
  EXPECT_EQ(history.stop_reason, "the time limit of 1 s is over");
}

TEST(TimeLimit, LeavesTrainingAloneWhileThereIsTime) {
  const History history = fit(classifier(), 3, {callbacks::TimeLimit(std::chrono::hours(1))});
  EXPECT_EQ(history.epochs.size(), 3u);
  EXPECT_EQ(history.stop_reason, "");
}

TEST(EarlyStopping, SaysWhatWasNotReached) {
  const auto history = fit(classifier(), 4,
                           {script("val_loss", {5, 4, 4.5, 4}),
                            callbacks::EarlyStopping({.patience = 2, .baseline = 1.5})});
  EXPECT_EQ(history.stop_reason,
            "val_loss has not improved to beyond the baseline 1.5 for 3 epochs");
  const auto reached = fit(classifier(), 4,
                           {script("val_loss", {5, 1, 2, 3}),
                            callbacks::EarlyStopping({.patience = 2, .baseline = 1.5})});
  EXPECT_EQ(reached.stop_reason, "val_loss has not improved for 2 epochs");
  const double nan = std::nan("");
  const auto never = fit(
      classifier(), 2, {script("val_loss", {nan, nan}), callbacks::EarlyStopping({.baseline = 1})});
  EXPECT_EQ(never.stop_reason, "val_loss has not improved to beyond the baseline 1 for 2 epochs");
}

// Whether training ends with the weights of epoch `best` where the monitor has these values.
void expect_restored(std::vector<double> values, int64_t best, int64_t start_from_epoch = 0) {
  auto model = classifier();
  Tensor kept;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    if (training.epoch() == best) kept = training.model().variables()[0]->value().clone();
  };
  fit(model, std::ssize(values),
      {script("val_loss", values), hooks,
       callbacks::EarlyStopping(
           {.patience = 2, .restore_best_weights = true, .start_from_epoch = start_from_epoch})});
  EXPECT_EQ(to_string(model.variables()[0]->value()), to_string(kept));
}

TEST(EarlyStopping, RestoresTheBestWeights) { expect_restored({5, 1, 2, 3, 4}, 1); }

TEST(EarlyStopping, RestoresTheFirstWeightsItSawWhereNoValueIsANumber) {
  const double nan = std::nan("");
  expect_restored({nan, nan, nan}, 0);
  expect_restored({1, nan, nan, nan}, 1, 1);
  expect_restored({nan, 3, 4, 5}, 1);
}

// How many epochs EarlyStopping trains that watches a metric with the values 1, 2 and 3.
size_t epochs_by(const metrics::Metric& metric, callbacks::Mode mode = callbacks::Mode::kAuto) {
  auto model = nn::Sequential({nn::Dense(2)});
  model.compile({.optimizer = optim::SGD(0.1),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metric}});
  const std::string result = "val_" + metric.name();
  return fit(model, 3,
             {script(result, {1, 2, 3}),
              callbacks::EarlyStopping({.monitor = result, .mode = mode})})
      .epochs.size();
}

metrics::Metric mean_output(const std::string& name,
                            metrics::Direction direction = metrics::Direction::kUnknown) {
  return metrics::Mean(
      name, [](const Value&, const Value& y_pred) { return ops::reduce_mean(y_pred, {1}); },
      direction);
}

TEST(Monitor, GoesByTheDirectionOfTheMetric) {
  EXPECT_EQ(epochs_by(metrics::SparseTopKCategoricalAccuracy(2, "top2")), 3u);
  EXPECT_EQ(epochs_by(mean_output("f1", metrics::Direction::kUp)), 3u);
  EXPECT_EQ(epochs_by(mean_output("f1", metrics::Direction::kDown)), 2u);
  EXPECT_EQ(epochs_by(mean_output("lost_accuracy", metrics::Direction::kDown)), 2u)
      << "whatever it is named";
  EXPECT_EQ(epochs_by(mean_output("f1"), callbacks::Mode::kMax), 3u);
  EXPECT_EQ(epochs_by(mean_output("f1", metrics::Direction::kUp), callbacks::Mode::kMin), 2u);
  EXPECT_EQ(epochs_by(mean_output("kl_loss")), 2u);
}

TEST(Monitor, OfAnUnknownDirectionIsAnErrorBeforeTheFirstStep) {
  const auto expect_refused = [](const char* name, const CallbackPtr& callback) {
    auto model = classifier();
    EXPECT_EQ(error_of([&] {
                fit(model, 1, {script("val_f1", {1}), callback});
              }),
              str(name,
                  ": whether higher or lower values of \"val_f1\" are better is not known: give "
                  ".mode = Mode::kMax or Mode::kMin, or the metric a direction"));
    EXPECT_EQ(model.optimizer().iterations()->value().item(), 0);
  };
  expect_refused("EarlyStopping", callbacks::EarlyStopping({.monitor = "val_f1"}));
  expect_refused("ReduceLROnPlateau", callbacks::ReduceLROnPlateau({.monitor = "val_f1"}));
  const std::string path = make_folder() + "/best";
  expect_refused("ModelCheckpoint",
                 callbacks::ModelCheckpoint(path, {.monitor = "val_f1", .save_best_only = true}));
  EXPECT_EQ(error_of([&] {
              fit(classifier(), 1, {callbacks::ModelCheckpoint(path, {.monitor = "val_f1"})});
            }),
            "no error")
      << "it watches nothing";
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
    return str("warning: ", name, " needs \"val_loss\", and fit() has no validation_data");
  };
  const std::string path = make_folder() + "/best";
  const auto best = [&](bool only) {
    return callbacks::ModelCheckpoint(path, {.save_best_only = only});
  };
  const auto named = callbacks::ModelCheckpoint(path + "-{epoch}-{val_loss:.2f}");
  EXPECT_TRUE(said_before_the_first_step(std::nullopt, callbacks::EarlyStopping())
                  .starts_with(warning("EarlyStopping")));
  EXPECT_TRUE(said_before_the_first_step(std::nullopt, callbacks::ReduceLROnPlateau())
                  .starts_with(warning("ReduceLROnPlateau")));
  EXPECT_TRUE(
      said_before_the_first_step(std::nullopt, best(true)).starts_with(warning("ModelCheckpoint")));
  EXPECT_TRUE(
      said_before_the_first_step(std::nullopt, named).starts_with(warning("ModelCheckpoint")));
  EXPECT_EQ(said_before_the_first_step(std::nullopt, best(false)), "");
  EXPECT_EQ(said_before_the_first_step(points(8).batch(8), named), "");
  EXPECT_EQ(said_before_the_first_step(points(8).batch(8), callbacks::EarlyStopping()), "");
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

// The line was written, and the backup behind it was not.
TEST(CSVLogger, HasTheFirstEpochOnceThatWasTrainedTwice) {
  const std::string folder = make_folder(), path = folder + "/log.csv";
  const auto run = [&](bool dies) {
    auto power = std::make_shared<Hooks>();
    power->epoch_end = [=](Training&, Logs&) {
      if (dies) fail(Code::kAborted, "the power is gone");
    };
    classifier().fit(points(40).batch(8),
                     {.epochs = 2,
                      .callbacks = {callbacks::BackupAndRestore(folder, {.save_freq = 2}),
                                    callbacks::CSVLogger(path, {.append = true}), power},
                      .verbose = Verbose::kSilent});
  };
  EXPECT_THROW(run(true), Error);
  EXPECT_EQ(std::ranges::count(read_file(path), '\n'), 2);
  run(false);
  EXPECT_EQ(std::ranges::count(read_file(path), '\n'), 3) << read_file(path);
}

TEST(CSVLogger, SeparatesByTheCharacterAskedFor) {
  const std::string path = make_folder() + "/log.csv";
  auto only_a = std::make_shared<Hooks>();
  only_a->epoch_end = [](Training&, Logs& logs) { logs = {{"a", 0.5}}; };
  fit(classifier(), 1, {only_a, callbacks::CSVLogger(path, {.separator = ';'})});
  EXPECT_EQ(read_file(path), "epoch;a\n0;0.5\n");
}

TEST(CSVLogger, QuotesNamesThatWouldBreakTheTable) {
  const std::string path = make_folder() + "/log.csv";
  auto names = std::make_shared<Hooks>();
  names->epoch_end = [](Training&, Logs& logs) { logs = {{"a,b", 1}, {"c\"d", 2}, {"e\nf", 3}}; };
  fit(classifier(), 1, {names, callbacks::CSVLogger(path)});
  EXPECT_EQ(read_file(path), "epoch,\"a,b\",\"c\"\"d\",\"e\nf\"\n0,1,2,3\n");
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

TEST(ReduceLROnPlateau, RefusesAScheduleBeforeTheFirstStep) {
  auto model = classifier();
  model.compile(
      {.optimizer = optim::SGD(optim::schedules::PiecewiseConstantDecay({1}, {0.1, 0.01})),
       .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  EXPECT_EQ(error_of([&] { fit(model, 1, {callbacks::ReduceLROnPlateau({.monitor = "loss"})}); },
                     Code::kFailedPrecondition),
            "ReduceLROnPlateau: the learning rate follows a schedule and cannot be set");
}

TEST(Callbacks, APathThatCannotBeWrittenToIsFoundBeforeTheFirstStep) {
  const std::string folder = make_folder(), file = folder + "/file";
  std::ofstream(file) << "not a folder";
  const std::pair<std::string, CallbackPtr> all[] = {
      {"BackupAndRestore", callbacks::BackupAndRestore(file)},
      {"ModelCheckpoint", callbacks::ModelCheckpoint(file + "/{epoch}/weights")},
      {"TensorBoard", callbacks::TensorBoard(file + "/logs")}};
  for (const auto& each : all) {
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [](Training&) { ADD_FAILURE() << "it trains"; };
    const std::string error = error_of(
        [&] {
          fit(classifier(), 1, {hooks, each.second});
        },
        Code::kNotFound);
    EXPECT_TRUE(error.starts_with(str(each.first, ": cannot create the folder ", file))) << error;
  }
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
  for (const char* tag : {"batch_loss", "epoch_step_ms", "epoch_compute_share", "epoch_input_share",
                          "epoch_communication_share"})
    EXPECT_NE(train.find(tag), std::string::npos) << tag;
  EXPECT_EQ(train.find("epoch_late_workers_share"), std::string::npos) << "there are no others";
  EXPECT_EQ(validation.find("_share"), std::string::npos);
  EXPECT_EQ(validation.find("val_"), std::string::npos);
}

TEST(TensorBoard, WritesTheLearningRateOfEachEpoch) {
  const auto train = [](const optim::LearningRate& rate, std::vector<CallbackPtr> callbacks) {
    const std::string folder = make_folder();
    auto model = nn::Sequential({nn::Dense(2)});
    model.compile({.optimizer = optim::SGD(rate),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    callbacks.push_back(callbacks::TensorBoard(folder));
    fit(model, 2, std::move(callbacks));  // of one step each
    return event_fields::scalars(only_file(folder + "/train"), "epoch_learning_rate");
  };
  using ::testing::ElementsAre;
  using ::testing::FloatEq;
  EXPECT_THAT(train(0.5, {}), ElementsAre(0.5f, 0.5f));
  const auto halve = [](int64_t epoch, double rate) { return epoch == 0 ? rate : rate / 2; };
  EXPECT_THAT(train(0.5, {callbacks::LearningRateScheduler(halve)}), ElementsAre(0.5f, 0.25f));
  const optim::Schedule falling([](const Value& updates) { return 1.0 / (1.0 + updates); });
  EXPECT_THAT(train(falling, {}), ElementsAre(FloatEq(1.0f / 2), FloatEq(1.0f / 3)));
}

TEST(StepReport, PrintsALineForEachEpoch) {
  std::ostringstream out;
  fit(classifier(), 2, {callbacks::StepReport({.out = &out})});
  const std::string rest =
      ": step [0-9.]+ ms: compute [0-9]+ %, input [0-9]+ %, communication 0 %\n";
  EXPECT_THAT(out.str(), ::testing::MatchesRegex("epoch 1" + rest + "epoch 2" + rest));
}

}  // namespace
}  // namespace cohort
