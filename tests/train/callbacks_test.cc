#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/base/file.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::error_of;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;
using cohort::testing::script;

// Trains for some epochs of one step.
History fit(Model model, int64_t epochs, std::vector<CallbackPtr> callbacks) {
  return model.fit(
      points(8).batch(8),
      {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
}

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

TEST(ModelCheckpoint, SavesTheBestOnlyAndKeepsTheNewest) {
  const std::string folder = make_folder();
  fit(classifier(), 5,
      {script("val_loss", {3, 2, 4, 1, 5}),
       callbacks::ModelCheckpoint(folder + "/{epoch}", {.save_best_only = true, .keep = 2})});
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"2", "4"}));
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
       callbacks::ReduceLROnPlateau({.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.3})});
  EXPECT_EQ(history["learning_rate"][2], 1.0);
  EXPECT_EQ(history["learning_rate"][3], 0.5);
  EXPECT_EQ(history["learning_rate"][5], 0.5);
  EXPECT_NEAR(history["learning_rate"][6], 0.3, 1e-7);
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

// What was saved before the loss was no number any more is still there, and whole.
TEST(Divergence, LosesNothingThatWasSaved) {
  for (const bool terminates : {true, false}) {
    const std::string folder = make_folder();
    const std::string backup = folder + "/backup.safetensors", best = folder + "/best.safetensors";
    std::vector<CallbackPtr> all = {diverge(),
                                    callbacks::BackupAndRestore(folder, {.save_freq = 1}),
                                    callbacks::ModelCheckpoint(best)};
    if (terminates) all.push_back(callbacks::TerminateOnNaN());
    auto model = classifier();
    const auto fit = [&] {
      model.fit(points(40).batch(8), {.epochs = 3, .callbacks = all, .verbose = Verbose::kSilent});
    };
    if (terminates)
      EXPECT_THROW(fit(), Error);
    else
      fit();
    for (const std::string& file : {backup, best}) {
      auto loaded = classifier();
      loaded.load_checkpoint(file);
      for (const auto& variable : loaded.variables()) {
        const Tensor values = variable->value();
        for (const float value : values.values<float>()) ASSERT_TRUE(std::isfinite(value)) << file;
      }
    }
  }
}

// Where a fit that is stopped in its third epoch is continued: the bits of the final weights.
class DamagedBackups : public ::testing::Test {
 protected:
  std::string continued(int64_t stop_at = -1) {
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_end = [=](Training& training) {
      if (training.total_steps() == stop_at) fail(Code::kAborted, "the power is gone");
    };
    auto model = classifier();
    model.fit(points(40).shuffle(40, {.seed = 4}).batch(8),
              {.epochs = 4,
               .callbacks = {callbacks::BackupAndRestore(folder_), hooks},
               .verbose = Verbose::kSilent});
    return cohort::testing::bits(model);
  }
  static void damage(const std::string& path) {
    std::string bytes = read_file(path);
    bytes[bytes.size() - 5] ^= 1;
    write_file_atomically(path, bytes);
  }

  const std::string folder_ = make_folder();
  const std::string newest_ = folder_ + "/backup.safetensors", previous_ = newest_ + ".previous";
};

TEST_F(DamagedBackups, GiveWayToTheOneBefore) {
  const std::string expected = continued();
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "both are removed in the end";
  EXPECT_THROW(continued(13), Error);
  damage(newest_);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(continued(8), Error);  // from the end of the first epoch, in which there are 5
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("goes on from the one before, " + previous_ + ": " + newest_),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("damaged"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(previous_)) << "it is the newest now";
  EXPECT_EQ(continued(), expected);
}

TEST_F(DamagedBackups, AreAnErrorWhenThereIsNoOther) {
  EXPECT_THROW(continued(13), Error);
  damage(newest_);
  damage(previous_);
  EXPECT_NE(error_of([&] { continued(); }, Code::kDataLoss).find(previous_), std::string::npos);
  std::filesystem::remove(previous_);
  EXPECT_NE(error_of([&] { continued(); }, Code::kDataLoss).find(newest_), std::string::npos);
}

// As when a save was broken off.
TEST_F(DamagedBackups, AndThoseThatAreNotThereGiveWayToTheOneBefore) {
  const std::string expected = continued();
  EXPECT_THROW(continued(13), Error);
  std::filesystem::remove(newest_);
  EXPECT_EQ(continued(), expected);
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

}  // namespace
}  // namespace cohort
