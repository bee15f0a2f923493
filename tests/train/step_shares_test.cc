// What steps take their time for: of times that are made up, and in training.
#include <chrono>
#include <optional>

#include "core/train/step_meter.h"
#include "tests/distribute/testing.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::Hooks;
using cohort::testing::points;
using std::chrono::milliseconds;

double sum_of(const StepShares& shares) {
  return shares.compute + shares.input + shares.communication.value_or(0) + shares.for_workers();
}

// A moment `ms` after the beginning, by when steps have stood still for `waited`.
StepMeter::Moment at(int ms, int waited = 0, const std::vector<int>& for_worker = {}) {
  StepWaits waits{.all = milliseconds(waited)};
  for (const int each : for_worker) waits.for_worker.emplace_back(milliseconds(each));
  return {std::chrono::steady_clock::time_point(milliseconds(ms)), waits};
}

TEST(StepMeter, SharesAddUpToOne) {
  StepMeter meter;
  EXPECT_EQ(sum_of(meter.shares()), 0) << "no step";
  meter.add_input(at(0), at(10));
  meter.add_run(at(30), at(120, 20));  // what is between them is a callback's
  meter.add_input(at(120, 20), at(130, 20));
  meter.add_run(at(130, 20), at(220, 50));
  const StepShares shares = meter.shares();
  EXPECT_EQ(shares.steps, 2);
  EXPECT_DOUBLE_EQ(shares.seconds, 0.1);
  EXPECT_DOUBLE_EQ(shares.input, 0.1);
  EXPECT_DOUBLE_EQ(shares.communication.value(), 0.25);
  EXPECT_DOUBLE_EQ(shares.compute, 0.65);
  EXPECT_TRUE(shares.for_worker.empty());
}

TEST(StepMeter, WaitingForWorkersIsNeitherInputNorCommunication) {
  StepMeter meter;
  meter.add_input(at(0, 0, {0, 0}), at(10, 5, {0, 0}));
  meter.add_run(at(10, 5, {0, 0}), at(100, 45, {0, 20}));
  const StepShares shares = meter.shares();
  EXPECT_DOUBLE_EQ(shares.input, 0.05);
  EXPECT_DOUBLE_EQ(shares.communication.value(), 0.25);
  EXPECT_DOUBLE_EQ(shares.for_worker.at(0), 0);
  EXPECT_DOUBLE_EQ(shares.for_worker.at(1), 0.2);
  EXPECT_DOUBLE_EQ(shares.compute, 0.5);
}

// The first step of an epoch finds out for whom the last one before it has waited.
TEST(StepMeter, WaitsForWorkersAreNoMoreThanAllWaits) {
  StepMeter meter;
  meter.add_run(at(0, 0, {0, 0}), at(100, 30, {0, 60}));
  const StepShares shares = meter.shares();
  EXPECT_DOUBLE_EQ(shares.for_worker.at(1), 0.3);
  EXPECT_DOUBLE_EQ(shares.communication.value(), 0);
  EXPECT_DOUBLE_EQ(shares.compute, 0.7);
}

TEST(StepMeter, WaitsOfAnotherThreadsStepsAreNoMoreThanTheTime) {
  StepMeter meter;
  meter.add_run(at(0), at(100, 500));
  EXPECT_DOUBLE_EQ(meter.shares().communication.value(), 1);
  EXPECT_DOUBLE_EQ(meter.shares().compute, 0);
}

TEST(StepMeter, CommunicationThatNobodySeesCountsAsComputing) {
  StepMeter meter;
  const auto unseen = [](int ms) { return StepMeter::Moment{at(ms).time, std::nullopt}; };
  meter.add_input(unseen(0), unseen(10));
  meter.add_run(unseen(10), unseen(100));
  const StepShares shares = meter.shares();
  EXPECT_FALSE(shares.communication.has_value());
  EXPECT_DOUBLE_EQ(shares.input, 0.1);
  EXPECT_DOUBLE_EQ(shares.compute, 0.9);
}

// The shares of each epoch of a training.
std::vector<StepShares> train(Model model, const data::Dataset& dataset) {
  std::vector<StepShares> shares;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) { shares.push_back(training.step_shares()); };
  model.fit(dataset, {.epochs = 2, .callbacks = {hooks}, .verbose = Verbose::kSilent});
  return shares;
}

TEST(StepShares, OfASlowDatasetAreInput) {
  const auto slow = [](const data::Element& element) {
    const auto end = std::chrono::steady_clock::now() + milliseconds(20);
    while (std::chrono::steady_clock::now() < end) {
    }
    return element;
  };
  // A machine that others use may take its time for a step, but not for all of them.
  constexpr int kAttempts = 20;
  bool is_input = false;
  for (int i = 0; i < kAttempts && !is_input; ++i) {
    const auto shares = train(classifier(), points(32).batch(8).map(slow));
    ASSERT_EQ(shares.size(), 2u);
    // The first epoch has traced the step as well.
    is_input = shares[1].input > shares[1].compute;
    for (const StepShares& each : shares) {
      EXPECT_EQ(each.steps, 4);
      EXPECT_GT(each.seconds, 0);
      EXPECT_EQ(each.communication, 0) << "with nobody";
      EXPECT_NEAR(sum_of(each), 1, 1e-9);
    }
  }
  EXPECT_TRUE(is_input);
}

using SharesOfReplicas = cohort::testing::DevicesTest;

TEST_F(SharesOfReplicas, HaveCommunication) {
  for (const bool central : {false, true}) {
    const auto strategy = cohort::testing::make_strategy({.count = 2, .central = central});
    const auto scope = strategy->scope();
    for (const StepShares& each : train(classifier(), points(32).batch(8))) {
      EXPECT_GT(each.communication.value(), 0);
      EXPECT_GT(each.compute, 0);
      EXPECT_TRUE(each.for_worker.empty());
      EXPECT_NEAR(sum_of(each), 1, 1e-9);
    }
  }
}

}  // namespace
}  // namespace cohort
