#include <csignal>
#include <cstdlib>

#include "tests/train/testing.h"

namespace cohort {
namespace {

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

// Exits with what run_main returns.
void train_until_terminated(int signals) {
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->batch_begin = [&](Training& training) {
    if (training.step() != 1) return;
    for (int i = 0; i < signals; ++i) raise(SIGTERM);
  };
  std::_Exit(run_main([&] {
    auto model = testing::classifier();
    model.fit(testing::points(40).batch(4), {.callbacks = {hooks}, .verbose = Verbose::kSilent});
  }));
}

TEST(Termination, StopsFitAndSaysThatTheProgramCanBeStartedAgain) {
  EXPECT_EXIT(train_until_terminated(1), ::testing::ExitedWithCode(kExitResumable),
              "CANCELLED: fit: interrupted in epoch 1 after step 2");
}

TEST(Termination, TheSecondTimeEndsTheProcessAtOnce) {
  EXPECT_EXIT(train_until_terminated(2), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(Termination, OutsideFitItEndsTheProcess) {
  EXPECT_EXIT(std::_Exit(run_main([] { raise(SIGTERM); })), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(RunMain, TurnsErrorsIntoExitCodes) {
  EXPECT_EQ(run_main([] {}), 0);
  EXPECT_EQ(run_main([] { invalid("wrong"); }), 2);
  EXPECT_EQ(run_main([] { fail(Code::kNotFound, "no file"); }), 15);
  EXPECT_EQ(run_main([] { throw std::runtime_error("other"); }), 1);
}

}  // namespace
}  // namespace cohort
