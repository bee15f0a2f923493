#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/file.h"
#include "core/train/safetensors.h"
#include "tests/testing/comma_locale.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::die_after;
using cohort::testing::error_of;
using cohort::testing::fit;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::script;

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

TEST(ModelCheckpoint, SaysInItsFilesOfWhatEpochTheyAreAndHowGood) {
  const std::string folder = make_folder();
  fit(classifier(), 3,
      {script("val_loss", {0.5, 0.125, 2}),
       callbacks::ModelCheckpoint(folder + "/best.safetensors", {.save_best_only = true})});
  const Metadata metadata = load_metadata(folder + "/best.safetensors");
  EXPECT_EQ(metadata.at("epoch"), "2");
  EXPECT_EQ(metadata.at("batch"), "1");
  EXPECT_EQ(metadata.at("val_loss"), "0.125");
  EXPECT_TRUE(metadata.contains("loss"));
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

TEST(ModelCheckpoint, FormatsNumbersAlikeInEveryLocale) {
  const testing::CommaLocale comma;
  if (!comma.is_set()) GTEST_SKIP() << "no locale with a comma";
  const std::string folder = make_folder();
  fit(classifier(), 1,
      {script("val_loss", {-0.25}),
       callbacks::ModelCheckpoint(folder + "/{epoch:02d} {val_loss:.3f} {val_loss:07.2f}"
                                           "{val_loss:9.1e} {val_loss}")});
  EXPECT_TRUE(std::filesystem::exists(folder + "/01 -0.250 -000.25 -2.5e-01 -0.25"));
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

TEST(ModelCheckpoint, RefusesAPathWithoutTheNameOfAFile) {
  for (const char* path : {"", "/", "folder/", "{epoch}/"})
    EXPECT_EQ(error_of([&] { callbacks::ModelCheckpoint(path); }),
              str("ModelCheckpoint: the path \"", path, "\" ends without the name of a file"));
}

TEST(ModelCheckpoint, RefusesAFolderBeforeTheFirstStep) {
  const std::string folder = make_folder();
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_begin = [](Training&) { ADD_FAILURE() << "it trains"; };
  EXPECT_EQ(error_of([&] {
              fit(classifier(), 1, {hooks, callbacks::ModelCheckpoint(folder)});
            }),
            "ModelCheckpoint: " + folder + " is a folder; give the path of a file");
}

TEST(ModelCheckpoint, TakesTheLongestNamesAndRefusesLongerOnesBeforeTheFirstStep) {
  const std::string longest = make_folder() + "/" + std::string(255, 'n');
  fit(classifier(), 1, {callbacks::ModelCheckpoint(longest)});
  EXPECT_TRUE(std::filesystem::exists(longest));
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_begin = [](Training&) { ADD_FAILURE() << "it trains"; };
  EXPECT_EQ(error_of([&] {
              fit(classifier(), 1, {hooks, callbacks::ModelCheckpoint(longest + "n")});
            }),
            "ModelCheckpoint: the name of the file " + longest + "n is too long for its folder");
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

TEST(ModelCheckpoint, LeavesTheFilesOfTheRunWhoseFolderWasCopied) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, int64_t die) {
    fit(classifier(), 4,
        {callbacks::ModelCheckpoint(folder + name + "/all/{epoch}", {.keep = 1}), die_after(die),
         callbacks::BackupAndRestore(folder + name + "/backup")});
  };
  EXPECT_THROW(run("/first", 3), Error);
  std::filesystem::copy(folder + "/first", folder + "/second",
                        std::filesystem::copy_options::recursive);
  run("/second", -1);
  EXPECT_EQ(files_in(folder + "/first/all"), (std::vector<std::string>{"2"}));
  EXPECT_EQ(files_in(folder + "/second/all"), (std::vector<std::string>{"2", "4"}));
}

TEST(ModelCheckpoint, DeletesNothingElsewhereWhateverABackupSays) {
  const std::string folder = make_folder(), other = folder + "/other",
                    backup = folder + "/backup/backup.safetensors";
  const auto run = [&](int64_t die) {
    fit(classifier(), 4,
        {callbacks::ModelCheckpoint(folder + "/all/{epoch}", {.keep = 1}), die_after(die),
         callbacks::BackupAndRestore(folder + "/backup")});
  };
  for (const char* way : {"/all/../other", "/all/./../other", "/all/in/../../other"}) {
    std::filesystem::remove_all(folder + "/all");
    std::filesystem::create_directories(folder + "/all/in");
    write_file_atomically(other, "of somebody else");
    EXPECT_THROW(run(3), Error);
    Safetensors content = read_safetensors(backup);
    const std::string path = folder + way;
    content.tensors.at("extra:callback ModelCheckpoint #1: written/0") =
        Tensor::from(std::span(reinterpret_cast<const uint8_t*>(path.data()), path.size()),
                     {static_cast<int64_t>(path.size())});
    write_safetensors(backup, content);
    run(-1);
    EXPECT_TRUE(std::filesystem::exists(other)) << way;
  }
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
  EXPECT_NE(error_of([] {
              callbacks::ModelCheckpoint(
                  "best", {.save_best_only = true, .save_interval = std::chrono::hours(1)});
            }).find("and save_interval saves after batches"),
            std::string::npos);
  callbacks::ModelCheckpoint("best", {.monitor = "loss", .save_best_only = true, .save_freq = 2});
  callbacks::ModelCheckpoint("all", {.save_freq = 2});
}

TEST(ModelCheckpoint, NamedByAResultOfValidationIsOfValidatedEpochs) {
  const std::string path = make_folder() + "/{epoch}-{val_accuracy:.0f}";
  classifier().fit(cohort::testing::points(8).batch(8),
                   {.epochs = 4,
                    .validation_data = cohort::testing::points(8).batch(8),
                    .validation_freq = 2,
                    .callbacks = {callbacks::ModelCheckpoint(path)},
                    .verbose = Verbose::kSilent});
  std::set<char> epochs;
  for (const auto& [name, content] :
       cohort::testing::contents(std::filesystem::path(path).parent_path().string()))
    epochs.insert(name[0]);
  EXPECT_EQ(epochs, (std::set<char>{'2', '4'}));
  EXPECT_NE(error_of([&] {
              callbacks::ModelCheckpoint(path, {.save_freq = 2});
            }).find("results of validation are known after an epoch only"),
            std::string::npos);
}

TEST(ModelCheckpoint, SavesWeightsAloneAfterSoManyBatches) {
  const std::string folder = make_folder();
  fit(classifier(), 5,
      {callbacks::ModelCheckpoint(folder + "/{epoch}",
                                  {.save_weights_only = true, .save_freq = 2})});
  EXPECT_EQ(read_safetensors(folder + "/4").tensors.size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder + "/5"));
}

TEST(ModelCheckpoint, SavesAfterSoLongATime) {
  constexpr std::chrono::milliseconds kInterval(20);
  const std::string folder = make_folder();
  std::chrono::duration<double> elapsed{0};
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training& training) {
    std::this_thread::sleep_for(kInterval / 4);
    elapsed = training.elapsed();
  };
  fit(classifier(), 20,
      {hooks, callbacks::ModelCheckpoint(folder + "/{epoch}", {.save_interval = kInterval})});
  const auto saves = std::ssize(files_in(folder));
  EXPECT_GE(saves, 1);
  EXPECT_LE(saves, elapsed / kInterval + 1);
}

TEST(ModelCheckpoint, SavesAfterSoLongATimeOrSoManyBatches) {
  const auto save = [](std::optional<int64_t> save_freq, std::chrono::nanoseconds interval) {
    const std::string own = make_folder();
    fit(classifier(), 5,
        {callbacks::ModelCheckpoint(own + "/{epoch}",
                                    {.save_freq = save_freq, .save_interval = interval})});
    return files_in(own);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(save(std::nullopt, std::chrono::hours(1)), Names()) << "although epochs end";
  EXPECT_EQ(save(2, std::chrono::hours(1)), (Names{"2", "4"}));
  EXPECT_EQ(save(2, std::chrono::nanoseconds(1)), (Names{"1", "2", "3", "4", "5"}));
}

}  // namespace
}  // namespace cohort
