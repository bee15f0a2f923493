#include <atomic>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <pty.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/testing/file_size_limit.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using testing::points;

TEST(Interrupt, EndsFitAfterTheStepWithTheCallbacksCalled) {
  bool ended = false;
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->batch_begin = [](Training& training) {
    if (training.step() == 1) raise(SIGINT);
  };
  hooks->train_end = [&](Training& training) { ended = training.interrupted(); };
  auto model = testing::classifier();
  init();
  EXPECT_EQ(testing::error_of(
                [&] {
                  model.fit(testing::points(40).batch(4),
                            {.callbacks = {hooks}, .verbose = Verbose::kSilent});
                },
                Code::kCancelled),
            "fit: interrupted in epoch 1 after step 2");
  EXPECT_TRUE(ended);
}

TEST(Interrupt, LeavesWhatWasTrainedWhereTheOptimizerKeepsAverages) {
  auto model = testing::classifier();
  model.compile({.optimizer = optim::SGD(0.5, {.ema = optim::EmaOptions{}}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  std::string trained;
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->batch_begin = [](Training& training) {
    if (training.step() == 2) raise(SIGINT);
  };
  hooks->batch_end = [&](Training& training) { trained = testing::bits(training.model()); };
  init();
  const auto fit = [&] {
    model.fit(points(40).batch(4), {.callbacks = {hooks}, .verbose = Verbose::kSilent});
  };
  EXPECT_EQ(testing::error_of(fit, Code::kCancelled), "fit: interrupted in epoch 1 after step 3");
  EXPECT_TRUE(testing::bits(model) == trained);
}

TEST(Interrupt, SaysOnATerminalWhatItDoes) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    init();
    raise(SIGINT);
    std::_Exit(interrupted() ? 0 : 1);
  }
  std::string said;
  char part[256];
  for (ssize_t count; (count = ::read(terminal, part, sizeof(part))) > 0;) said.append(part, count);
  ::close(terminal);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(said.find("interrupt: what trains stops after its present step; another one ends"),
            std::string::npos)
      << said;
}

TEST(Interrupt, LeavesABackupToContinueFrom) {
  const std::string folder = testing::make_folder();
  const auto train = testing::points(30).shuffle(30, {.seed = 4}).batch(4);
  const auto fit = [&](Model& model, CallbackPtr extra) {
    return model.fit(train, {.epochs = 3,
                             .callbacks = {callbacks::BackupAndRestore(folder), extra},
                             .verbose = Verbose::kSilent});
  };
  init();
  auto hooks = std::make_shared<testing::Hooks>();
  auto whole = testing::classifier();
  const auto expected = fit(whole, hooks);

  init();
  hooks->batch_begin = [](Training& training) {
    if (training.epoch() == 1 && training.step() == 3) raise(SIGINT);
  };
  auto broken = testing::classifier();
  EXPECT_THROW(fit(broken, hooks), Error);

  init();
  auto resumed = testing::classifier();
  const auto rest = fit(resumed, std::make_shared<testing::Hooks>());
  EXPECT_EQ(testing::bits(resumed), testing::bits(whole));
  EXPECT_EQ(rest["loss"],
            std::vector<double>(expected["loss"].begin() + 1, expected["loss"].end()));
}

// Trains for two epochs of eight steps.
void fit_points(Model& model, std::vector<CallbackPtr> callbacks,
                std::optional<int64_t> steps_per_epoch = std::nullopt) {
  model.fit(points(30).shuffle(30, {.seed = 4}).batch(4), {.epochs = 2,
                                                           .steps_per_epoch = steps_per_epoch,
                                                           .callbacks = std::move(callbacks),
                                                           .verbose = Verbose::kSilent});
}

// A scheduler asks for the end during the third step, and lets the process live for a time.
struct Preemption {
  explicit Preemption(double grace_seconds, int signal = SIGTERM)
      : backup(callbacks::BackupAndRestore(folder, {.grace_seconds = grace_seconds})) {
    hooks->batch_begin = [this, signal](Training& training) {
      was_saved.push_back(std::filesystem::exists(file));
      if (training.step() == 2) raise(signal);
    };
  }
  // What ends training.
  std::string error(std::optional<int64_t> steps_per_epoch = std::nullopt) {
    init();
    auto model = testing::classifier();
    const auto fit = [&] { fit_points(model, {hooks, backup}, steps_per_epoch); };
    std::string message = testing::error_of(fit, Code::kCancelled);
    init();
    return message;
  }
  bool saved_twice() const { return std::filesystem::exists(file + ".previous"); }

  const std::string folder = testing::make_folder(), file = folder + "/backup.safetensors";
  const std::shared_ptr<testing::Hooks> hooks = std::make_shared<testing::Hooks>();
  const CallbackPtr backup;
  std::vector<bool> was_saved;  // before each step
};

TEST(Interrupt, WithinItsGraceTrainingSavesAtOnceAndAgainWhenTheEpochEnds) {
  Preemption preemption(3600);
  EXPECT_EQ(preemption.error(), "fit: interrupted in epoch 1 after step 8");
  EXPECT_EQ(preemption.was_saved,
            std::vector<bool>({false, false, false, true, true, true, true, true}));
  EXPECT_TRUE(preemption.saved_twice());

  auto resumed = testing::classifier(), whole = testing::classifier();
  fit_points(resumed, {callbacks::BackupAndRestore(preemption.folder)});
  fit_points(whole, {});
  EXPECT_EQ(testing::bits(resumed), testing::bits(whole));
}

TEST(Interrupt, AGraceWithoutTimeForAStepEndsWithTheFirstSave) {
  Preemption preemption(1e-6);
  EXPECT_EQ(preemption.error(), "fit: interrupted in epoch 1 after step 3");
  EXPECT_TRUE(std::filesystem::exists(preemption.file));
  EXPECT_FALSE(preemption.saved_twice());
}

// A position that shuffle() above such a map would save could not be found again.
TEST(Interrupt, StaysOneWhereThePlaceInTheDataCannotBeSaved) {
  const std::string folder = testing::make_folder();
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->batch_begin = [](Training& training) {
    if (training.epoch() == 1 && training.step() == 1) raise(SIGTERM);
  };
  const auto same = [](const data::Element& e) { return e; };
  const auto rows =
      points(30).map(same, {.num_parallel = 2, .deterministic = false}).shuffle(8).batch(4);
  init();
  auto model = testing::classifier();
  ::testing::internal::CaptureStderr();
  const std::string message = testing::error_of(
      [&] {
        model.fit(rows, {.epochs = 2,
                         .callbacks = {hooks, callbacks::BackupAndRestore(folder)},
                         .verbose = Verbose::kSilent});
      },
      Code::kCancelled);
  init();
  EXPECT_THAT(message, ::testing::HasSubstr("interrupted in epoch 2"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("BackupAndRestore leaves the last backup as it is"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/backup.safetensors")) << "of the first epoch";
}

// Whoever is told that it was interrupted in good order goes on from what it has saved.
TEST(Interrupt, IsAnErrorWhereTheBackupCannotBeWritten) {
  const std::string folder = testing::make_folder(), file = folder + "/backup.safetensors";
  const auto fit = [&](Model& model, std::vector<CallbackPtr> callbacks) {
    callbacks.push_back(callbacks::BackupAndRestore(folder, {.save_freq = 3}));
    fit_points(model, std::move(callbacks));
  };
  auto whole = testing::classifier(), broken = testing::classifier();
  fit(whole, {});
  std::optional<testing::FileSizeLimit> full;
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->batch_begin = [&](Training& training) {
    if (training.total_steps() != 4) return;
    full.emplace(256);
    raise(SIGTERM);
  };
  init();
  const std::string message =
      testing::error_of([&] { fit(broken, {hooks}); }, Code::kResourceExhausted);
  full.reset();
  EXPECT_THAT(message, ::testing::StartsWith("fit: interrupted, and not saved: BackupAndRestore "
                                             "could not write in epoch 1 after step 5: "));
  EXPECT_THAT(message, ::testing::HasSubstr("what it has written in epoch 1 after step 3 is still "
                                            "there: " +
                                            file));
  init();
  auto resumed = testing::classifier();
  fit(resumed, {});
  EXPECT_EQ(testing::bits(resumed), testing::bits(whole));
}

TEST(Interrupt, WithinItsGraceASaveThatFailsIsFollowedByAnother) {
  Preemption preemption(3600);
  std::optional<testing::FileSizeLimit> full;
  preemption.hooks->batch_end = [&](Training& training) {
    if (training.step() == 3) full.emplace(256);
    if (training.step() == 4) full.reset();
  };
  EXPECT_EQ(preemption.error(), "fit: interrupted in epoch 1 after step 8");
  EXPECT_EQ(preemption.was_saved, std::vector<bool>(8, false)) << "at the end alone";
  EXPECT_TRUE(std::filesystem::exists(preemption.file));
}

TEST(Interrupt, APersonWhoInterruptsDoesNotWaitForTheGrace) {
  Preemption preemption(3600, SIGINT);
  EXPECT_EQ(preemption.error(), "fit: interrupted in epoch 1 after step 3");
  EXPECT_TRUE(std::filesystem::exists(preemption.file));
}

TEST(Interrupt, ALongEpochEndsWithItsGrace) {
  Preemption preemption(4);
  EXPECT_THAT(preemption.error(int64_t{1} << 40), ::testing::HasSubstr("interrupted in epoch 1"));
  EXPECT_GT(preemption.was_saved.size(), 3u);
  EXPECT_TRUE(preemption.saved_twice());
}

TEST(Interrupt, RefusesAGraceThatIsNone) {
  for (const double seconds : {-1.0, std::nan(""), 1e9})
    EXPECT_THAT(
        testing::error_of([&] { callbacks::BackupAndRestore("x", {.grace_seconds = seconds}); },
                          Code::kInvalidArgument),
        ::testing::HasSubstr("grace_seconds must be from 0 to 86400, got "));
}

// Rows for an evaluation that asks for a stop when `row` is read, and counts those that are read.
data::Dataset asking_to_stop(int64_t row, std::atomic<int64_t>& rows_read) {
  return points(10'000).map([row, &rows_read](data::Element element) {
    if (rows_read++ == row) raise(SIGTERM);
    return element;
  });
}

TEST(Interrupt, EndsAValidationWhichIsDoneAgainByWhoeverContinues) {
  const std::string folder = testing::make_folder();
  std::atomic<int64_t> read = 0;
  const auto fit = [&](Model& model, int64_t stop_at, std::vector<CallbackPtr> callbacks) {
    read = 0;
    return model.fit(testing::points(30).shuffle(30, {.seed = 4}).batch(4),
                     {.epochs = 3,
                      .validation_data = asking_to_stop(stop_at, read).batch(4),
                      .validation_steps = 500,
                      .callbacks = std::move(callbacks),
                      .verbose = Verbose::kSilent});
  };
  init();
  auto whole = testing::classifier();
  const auto expected = fit(whole, -1, {});

  auto broken = testing::classifier();
  int64_t epochs_ended = 0;
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->epoch_end = [&](Training&, Logs&) { ++epochs_ended; };
  int64_t validating = 0;
  hooks->validation_begin = [&](Training&) { ++validating; };
  hooks->validation_end = [&](Training&) { --validating; };
  hooks->train_end = [&](Training&) { EXPECT_EQ(validating, 0); };
  EXPECT_EQ(testing::error_of(
                [&] {
                  fit(broken, 2'040, {callbacks::BackupAndRestore(folder), hooks});
                },
                Code::kCancelled),
            "fit: interrupted in epoch 2 after step 8");
  EXPECT_EQ(epochs_ended, 1);
  EXPECT_LT(read, 3'000) << "it went on";

  init();
  auto resumed = testing::classifier();
  const auto rest = fit(resumed, -1, {callbacks::BackupAndRestore(folder)});
  EXPECT_EQ(testing::bits(resumed), testing::bits(whole));
  for (const char* name : {"loss", "val_loss", "val_accuracy"})
    EXPECT_EQ(rest[name], std::vector<double>(expected[name].begin() + 1, expected[name].end()));
}

TEST(Interrupt, EndsAnEvaluationThatIsToBeInterrupted) {
  auto model = testing::classifier();
  std::atomic<int64_t> read = 0;
  init();
  EXPECT_EQ(testing::error_of([&] { model.evaluate(asking_to_stop(8, read).batch(4)); },
                              Code::kCancelled),
            "evaluate: interrupted");
  EXPECT_LT(read, 5'000);
  // What was asked for holds for one that begins later, too.
  EXPECT_EQ(testing::error_of([&] { model.evaluate(asking_to_stop(-1, read).batch(4)); },
                              Code::kCancelled),
            "evaluate: interrupted");
  init();
  EXPECT_EQ(
      model.evaluate(asking_to_stop(read + 8, read).batch(4), {.interruptible = false}).size(), 2u);
  init();
}

TEST(Interrupt, EndsAPredictionThatIsToBeInterrupted) {
  auto model = testing::classifier();
  std::atomic<int64_t> read = 0;
  init();
  EXPECT_EQ(
      testing::error_of([&] { model.predict(asking_to_stop(8, read).batch(4)); }, Code::kCancelled),
      "predict: interrupted");
  EXPECT_LT(read, 5'000);
  EXPECT_EQ(testing::error_of([&] { model.predict(asking_to_stop(-1, read).batch(4)); },
                              Code::kCancelled),
            "predict: interrupted");
  init();
  const Tensor all =
      model.predict(asking_to_stop(read + 8, read).batch(4), {.interruptible = false});
  EXPECT_EQ(all.shape().dim(0), 10'000);
  init();
}

TEST(Interrupt, DoesNotEndAnEvaluationOfACallbackBeforeFitHasSaved) {
  const std::string folder = testing::make_folder();
  auto model = testing::classifier();
  std::atomic<int64_t> read = 0;
  bool evaluated = false;
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    training.model().evaluate(asking_to_stop(8, read).batch(4));
    evaluated = true;
  };
  init();
  EXPECT_EQ(testing::error_of(
                [&] {
                  model.fit(testing::points(40).batch(4),
                            {.epochs = 2,
                             .callbacks = {hooks, callbacks::BackupAndRestore(folder)},
                             .verbose = Verbose::kSilent});
                },
                Code::kCancelled),
            "fit: interrupted in epoch 2 after step 1");
  EXPECT_TRUE(evaluated);
  EXPECT_TRUE(std::filesystem::exists(folder + "/backup.safetensors"));
  init();
}

// Tests in processes begun anew: a fork of this one would wait for threads that it does not have.
class Termination : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using RunMain = Termination;

volatile std::sig_atomic_t was_handled = 0;
void handle(int) { was_handled = 1; }

// Exits with what run_main returns. `before` is how the signal is handled at first.
void train_until_terminated(int signal, int times, void (*before)(int) = SIG_DFL) {
  std::signal(signal, before);
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->batch_begin = [&](Training& training) {
    if (training.step() != 1) return;
    for (int i = 0; i < times; ++i) raise(signal);
  };
  std::_Exit(run_main([&] {
    auto model = testing::classifier();
    model.fit(testing::points(40).batch(4), {.callbacks = {hooks}, .verbose = Verbose::kSilent});
  }));
}

TEST_F(Termination, StopsFitAndSaysThatTheProgramCanBeStartedAgain) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(train_until_terminated(signal, 1), ::testing::ExitedWithCode(kExitResumable),
                "CANCELLED: fit: interrupted in epoch 1 after step 2");
}

TEST_F(Termination, BySignalsThatComeTogetherIsOneRequest) {
  for (const auto& [signal, code] :
       {std::pair{SIGTERM, kExitResumable}, {SIGINT, exit_code(Code::kCancelled)}})
    EXPECT_EXIT(train_until_terminated(signal, 3), ::testing::ExitedWithCode(code),
                "CANCELLED: fit: interrupted in epoch 1 after step 2");
}

TEST_F(Termination, BySignalsOfWhichOneComesAfterFitIsOneRequest) {
  const auto raise_twice = [](int signal) {
    std::signal(signal, SIG_DFL);
    std::_Exit(run_main([signal] {
      {
        const CatchTermination fit;
        raise(signal);
      }
      raise(signal);
      fail(Code::kCancelled, "saved");
    }));
  };
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(raise_twice(signal), ::testing::ExitedWithCode(kExitResumable), "CANCELLED: saved");
}

TEST_F(Termination, ByASignalThatGoesOnComingEndsTheProcessAtOnce) {
  for (const int signal : {SIGTERM, SIGINT})
    EXPECT_EXIT(train_until_terminated(signal, INT_MAX), ::testing::KilledBySignal(signal), "");
}

TEST_F(Termination, ByATerminalThatClosesOrAWarningMayComeSeveralTimes) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(train_until_terminated(signal, 3), ::testing::ExitedWithCode(kExitResumable),
                "CANCELLED: fit: interrupted in epoch 1 after step 2");
}

TEST_F(Termination, OutsideFitItEndsTheProcess) {
  const auto raise_after_fit = [](int signal) {
    std::signal(signal, SIG_DFL);
    std::_Exit(run_main([&] {
      { const CatchTermination fit; }
      raise(signal);
    }));
  };
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(raise_after_fit(signal), ::testing::KilledBySignal(signal), "");
}

TEST_F(Termination, WhatTheProgramIgnoresOrHandlesStaysSo) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    EXPECT_EXIT(train_until_terminated(signal, 1, SIG_IGN), ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(train_until_terminated(signal, 1, handle), ::testing::ExitedWithCode(0), "");
  }
}

TEST_F(Termination, AHandlerThatTheProgramSetsDuringFitStays) {
  const auto raise_after_fit = [](int signal) {
    std::signal(signal, SIG_DFL);
    {
      const CatchTermination fit;
      std::signal(signal, handle);
    }
    raise(signal);
    std::_Exit(was_handled);
  };
  for (const int signal : {SIGTERM, SIGUSR1})
    EXPECT_EXIT(raise_after_fit(signal), ::testing::ExitedWithCode(1), "");
}

// A program that neither calls init() nor run_main(), and ends when it likes.
TEST_F(Termination, ReachesTheProgramsOwnHandlerWhilePredictGoesOn) {
  const auto raise_in_predict = [] {
    std::signal(SIGTERM, handle);
    auto model = testing::classifier();
    const auto rows = testing::points(40).map([](const data::Element& element) {
      if (was_handled == 0) raise(SIGTERM);
      return element;
    });
    const Tensor all = model.predict(rows.batch(4));
    std::_Exit(was_handled == 1 && all.shape()[0] == 40 && !interrupted() ? 0 : 1);
  };
  EXPECT_EXIT(raise_in_predict(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Termination, ThatTheProgramHandlesItselfMayAskForTheEndOfFit) {
  const auto request = [](int) { request_stop(StopRequest::kTermination); };
  EXPECT_EXIT(train_until_terminated(SIGTERM, 1, request),
              ::testing::ExitedWithCode(kExitResumable),
              "CANCELLED: fit: interrupted in epoch 1 after step 2");
}

TEST_F(RunMain, TurnsErrorsIntoExitCodes) {
  EXPECT_EQ(run_main([] {}), 0);
  EXPECT_EQ(run_main([] { invalid("wrong"); }), 2);
  EXPECT_EQ(run_main([] { fail(Code::kNotFound, "no file"); }), 15);
  EXPECT_EQ(run_main([] { throw std::runtime_error("other"); }), 1);
}

TEST_F(RunMain, OutputThatCannotBeWrittenIsAnError) {
  const auto print_to_full_disk = [] {
    if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(1);
    std::_Exit(run_main([] { std::printf("test_accuracy=0.98\n"); }));
  };
  EXPECT_EXIT(print_to_full_disk(), ::testing::ExitedWithCode(18),
              "RESOURCE_EXHAUSTED: cannot write standard output: No space left on device");
}

TEST_F(RunMain, AFileThatMayGrowNoFurtherIsAnErrorAsAFullDiskIs) {
  const auto print_beyond_limit = [] {
    std::signal(SIGXFSZ, SIG_DFL);
    const std::string file = "/proc/self/fd/" + std::to_string(::memfd_create("output", 0));
    const rlimit short_files{256, RLIM_INFINITY};  // as long as what is said of it
    if (std::freopen(file.c_str(), "w", stdout) == nullptr) std::_Exit(1);
    if (::setrlimit(RLIMIT_FSIZE, &short_files) != 0) std::_Exit(1);
    std::_Exit(run_main([] { std::printf("%s", std::string(500, 'x').c_str()); }));
  };
  EXPECT_EXIT(print_beyond_limit(), ::testing::ExitedWithCode(18),
              "RESOURCE_EXHAUSTED: cannot write standard output: File too large");
}

TEST_F(RunMain, FilesDoNotTakeThePlaceOfClosedStreams) {
  const auto write_without_streams = [] {
    for (const int stream : {0, 1}) ::close(stream);
    std::_Exit(run_main([] {
      const int file = ::open("/dev/zero", O_RDONLY);
      if (file < 3) invalid("a file is stream ", file);
      std::printf("not for that file\n");
    }));
  };
  EXPECT_EXIT(write_without_streams(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cohort
