// What callbacks cannot write while training goes on, and at its end.
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "core/train/appended_file.h"
#include "tests/testing/event_fields.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Less than a checkpoint of wide_classifier() has, and more than what is said of it.
constexpr rlim_t kSmall = 32 << 10;

// No file gets longer than `bytes` from the beginning of epoch `first` until that of epoch `end`.
CallbackPtr full_disk(int64_t first, int64_t end, rlim_t bytes = kSmall) {
  auto hooks = std::make_shared<Hooks>();
  const auto full = std::make_shared<std::optional<FileSizeLimit>>();
  hooks->epoch_begin = [=](Training& training) {
    if (training.epoch() == first) full->emplace(bytes);
    if (training.epoch() == end) full->reset();
  };
  return hooks;
}

// The same at the end of an epoch, for the callbacks between these two.
struct FullBetween {
  explicit FullBetween(int64_t epoch, rlim_t bytes = kSmall) {
    const auto full = std::make_shared<std::optional<FileSizeLimit>>();
    first->epoch_end = [=](Training& training, Logs&) {
      if (training.epoch() == epoch) full->emplace(bytes);
    };
    last->epoch_end = [=](Training&, Logs&) { full->reset(); };
  }
  const std::shared_ptr<Hooks> first = std::make_shared<Hooks>(), last = std::make_shared<Hooks>();
};
constexpr int64_t kNever = -1;

std::string error_of_fit(const Model& model, int64_t epochs,
                         const std::vector<CallbackPtr>& callbacks) {
  return error_of([&] { fit(model, epochs, callbacks); }, Code::kResourceExhausted);
}

TEST(FailedSaves, AreSaidCountedAndTriedAgain) {
  const std::string folder = make_folder(), path = folder + "/model";
  auto model = wide_classifier();
  ::testing::internal::CaptureStderr();
  const History history = fit(model, 6,
                              {full_disk(1, 5), callbacks::ModelCheckpoint(path),
                               callbacks::BackupAndRestore(folder + "/backup")});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(history["failed_saves"], (std::vector<double>{2, 4, 6, 8, 8}));
  const auto warning = [&](int epoch, const std::string& times) {
    return HasSubstr(str("warning: ModelCheckpoint could not write in epoch ", epoch,
                         " after step 1: cannot write ", path,
                         ": File too large; what it has written in epoch 1 after step 1 is still "
                         "there: ",
                         path, times, "\n"));
  };
  EXPECT_THAT(said, AllOf(warning(2, ""), warning(3, " (2 times in a row)"),
                          warning(5, " (4 times in a row)")));
  EXPECT_EQ(said.find("in epoch 4 after"), std::string::npos) << "the third: " << said;
  EXPECT_EQ(contents(folder + "/backup").size(), 0u);
  auto loaded = wide_classifier();
  loaded.load_checkpoint(path);
  EXPECT_EQ(bits(loaded), bits(model));
}

TEST(FailedSaves, AreNotAmongTheBest) {
  const std::string path = make_folder() + "/best";
  auto model = wide_classifier();
  std::string third;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    if (training.epoch() == 2) third = bits(training.model());
  };
  fit(model, 4,
      {full_disk(1, 2), hooks, script("val_loss", {5, 1, 3, 4}),
       callbacks::ModelCheckpoint(path, {.save_best_only = true})});
  model.load_checkpoint(path);
  EXPECT_EQ(bits(model), third) << "better than what is there";
}

TEST(FailedSaves, DeleteNoneOfBefore) {
  const std::string folder = make_folder();
  EXPECT_THAT(
      error_of_fit(wide_classifier(), 5,
                   {full_disk(2, 9), callbacks::ModelCheckpoint(folder + "/{epoch}", {.keep = 2})}),
      HasSubstr("what it has written in epoch 2 after step 1 is still there: " + folder + "/2"));
  for (const char* kept : {"/1", "/2"}) read_safetensors(folder + kept);
  EXPECT_EQ(contents(folder).size(), 2u);
}

// The model has its weights, and all callbacks are told of the end.
TEST(FailedSaves, AtTheEndOfTrainingAreAnError) {
  const std::string folder = make_folder(), path = folder + "/model";
  auto model = wide_classifier(), expected = wide_classifier();
  fit(expected, 3, {});
  bool ended = false;
  auto hooks = std::make_shared<Hooks>();
  hooks->train_end = [&](Training&) { ended = true; };
  const std::string error =
      error_of_fit(model, 3, {full_disk(0, 9), callbacks::ModelCheckpoint(path), hooks});
  EXPECT_THAT(error, AllOf(StartsWith("fit: training is complete, and its files are not: "
                                      "ModelCheckpoint could not write in epoch 3 after step 1: "
                                      "cannot write " +
                                      path),
                           HasSubstr("; it has written nothing before")));
  EXPECT_TRUE(ended);
  EXPECT_EQ(bits(model), bits(expected));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(FailedSaves, OfABackupThatIsToGoMatterToNobodyInTheEnd) {
  const std::string folder = make_folder();
  const auto backup = [&](bool goes) {
    return callbacks::BackupAndRestore(folder, {.delete_checkpoint = goes});
  };
  EXPECT_EQ(fit(wide_classifier(), 2, {full_disk(1, 9), backup(true)})["failed_saves"].back(), 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_THAT(error_of_fit(wide_classifier(), 2, {full_disk(1, 9), backup(false)}),
              HasSubstr("BackupAndRestore could not write in epoch 2 after step 1"));
  EXPECT_EQ(contents(folder).size(), 1u) << "of the first epoch";
}

// A supervisor that starts the job again does not take it for done.
TEST(FailedSaves, AtTheEndOfTrainingAreStillAnErrorAfterARestart) {
  const std::string folder = make_folder(), path = folder + "/model";
  const auto run = [&](int64_t epochs, int64_t full_at) {
    const FullBetween full(full_at);
    fit(wide_classifier(), epochs,
        {full.first, callbacks::ModelCheckpoint(path), full.last,
         callbacks::BackupAndRestore(folder + "/backup")});
  };
  const std::string error = error_of([&] { run(2, 1); }, Code::kResourceExhausted);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([&] { run(2, kNever); }, Code::kResourceExhausted), error)
      << "there was nothing to train";
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            str("warning: backups in ", folder,
                "/backup stay, since other files could not be written\n"));
  run(3, kNever);
  read_safetensors(path);
  EXPECT_TRUE(std::filesystem::is_empty(folder + "/backup"));
}

TEST(FailedWrites, OfCSVLoggerAreMadeUpFor) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, int64_t first, int64_t end, rlim_t bytes) {
    fit(classifier(), 4, {full_disk(first, end, bytes), callbacks::CSVLogger(folder + name)});
  };
  run("/expected", 9, 9, 0);
  const std::string expected = read_file(folder + "/expected");
  const size_t two_lines = expected.find('\n', expected.find('\n') + 1) + 1;
  for (const size_t bytes : {size_t{0}, size_t{7}, two_lines}) {
    const std::string name = str("/", bytes);
    run(name, 0, 2, bytes);
    EXPECT_EQ(read_file(folder + name), expected) << bytes;
  }
  EXPECT_THAT(
      error_of([&] { run("/never", 1, 9, two_lines + 5); }, Code::kResourceExhausted),
      AllOf(StartsWith(
                "fit: training is complete, and its files are not: CSVLogger could not write "),
            HasSubstr(folder + "/never: File too large")));
  EXPECT_EQ(read_file(folder + "/never"), expected.substr(0, two_lines)) << "whole lines";
}

// As a disk that takes lines, and nothing away.
TEST(FailedWrites, OfCSVLoggerLeaveWhatCannotBeReplaced) {
  const int sealed = memfd_create("log", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(sealed, 0);
  const std::string path = str("/proc/self/fd/", sealed);
  AppendedFile(path).append("of before\n");
  ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(error_of([&] { fit(classifier(), 2, {callbacks::CSVLogger(path)}); },
                       Code::kPermissionDenied),
              AllOf(StartsWith("fit: training is complete, and its files are not: CSVLogger could "
                               "not write "),
                    HasSubstr(": cannot shorten " + path + ": ")));
  EXPECT_EQ(read_file(path), "of before\n");
  close(sealed);
}

TEST(FailedWrites, OfCSVLoggerAreInBackups) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, int64_t die, int64_t full_at) {
    const std::string path = folder + name;
    const FullBetween full(full_at, 0);
    classifier().fit(points(40).batch(8),
                     {.epochs = 3,
                      .callbacks = {callbacks::BackupAndRestore(path + "-backup"), die_after(die),
                                    full.first, callbacks::CSVLogger(path), full.last},
                      .verbose = Verbose::kSilent});
    return read_file(path);
  };
  const std::string expected = run("/whole", -1, kNever);
  EXPECT_THROW(run("/broken", 7, 0), Error);
  EXPECT_EQ(read_file(folder + "/broken"), "");
  EXPECT_EQ(run("/broken", -1, kNever), expected);
}

TEST(FailedWrites, OfTensorBoardLeaveWholeEventsOut) {
  const std::string folder = make_folder();
  fit(classifier(), 4, {full_disk(0, 1, 8), full_disk(2, 3, 150), callbacks::TensorBoard(folder)});
  const auto files = contents(folder + "/train");
  ASSERT_EQ(files.size(), 1u) << "none of the first epoch";
  const auto records = event_fields::records(files.begin()->second);
  EXPECT_EQ(records.size(), 3u) << "the header, and the events of two epochs";
}

TEST(AppendedFile, TakesWholeRecordsOrNothing) {
  const std::string path = make_folder() + "/log";
  AppendedFile file(path);
  file.append("first\n");
  {
    const FileSizeLimit full(8);
    EXPECT_THAT(error_of([&] { file.append("second\n"); }, Code::kResourceExhausted),
                HasSubstr("cannot write to " + path));
  }
  EXPECT_EQ(read_file(path), "first\n");
  AppendedFile(path).append("second\n");
  EXPECT_EQ(read_file(path), "first\nsecond\n");
  file.cut(6);
  file.append("third\n");
  EXPECT_EQ(read_file(path), "first\nthird\n");
  EXPECT_THAT(error_of([&] { AppendedFile(path, /*must_be_new=*/true); }, Code::kUnknown),
              HasSubstr("File exists"));
}

}  // namespace
}  // namespace cohort::testing
