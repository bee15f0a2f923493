#include "benchmarks/training_time.h"

#include <gtest/gtest.h>

namespace cohort::benchmarks {
namespace {

// Steps of a second each, half a second apart.
std::vector<StepTime> steps(int64_t first, int64_t count, double begin) {
  std::vector<StepTime> steps;
  for (int64_t i = 0; i < count; ++i, begin += 1.5) steps.push_back({first + i, begin, begin + 1});
  return steps;
}

void expect_parts_to_be_all(const TimeSpent& spent, const std::vector<JobAttempt>& attempts) {
  EXPECT_DOUBLE_EQ(spent.total(), attempts.back().ended - attempts.front().started);
}

TEST(TrainingTime, OfTrainingThatNothingDisturbsGoesIntoStepsAndWhatIsBetweenThem) {
  const std::vector<JobAttempt> attempts = {
      {.started = 10, .steps = steps(0, 4, 10), .failed = 15.5, .ended = 15.5}};
  const TimeSpent spent = time_spent(attempts);
  EXPECT_EQ(spent.kept, 4);
  EXPECT_EQ(spent.between, 1.5);
  EXPECT_EQ(spent.lost + spent.ending + spent.starting, 0);
  EXPECT_EQ(spent.steps_lost, 0);
  EXPECT_DOUBLE_EQ(spent.effective(), 4 / 5.5);
  expect_parts_to_be_all(spent, attempts);
}

TEST(TrainingTime, StepsThatAreMadeAgainCountOnce) {
  // Four steps, of which two were saved, and a part of the fifth; two seconds until all have ended,
  // and three until steps begin.
  const std::vector<JobAttempt> attempts = {
      {.started = 10, .steps = steps(0, 4, 10), .failed = 16.25, .ended = 18.25},
      {.started = 18.25, .steps = steps(2, 3, 21.25), .failed = 25.25, .ended = 25.25}};
  const TimeSpent spent = time_spent(attempts);
  EXPECT_EQ(spent.kept, 2 + 3);
  EXPECT_EQ(spent.lost, 2 + 0.75);
  EXPECT_EQ(spent.steps_lost, 2);
  EXPECT_EQ(spent.between, 3 * 0.5 + 2 * 0.5);
  EXPECT_EQ(spent.ending, 2);
  EXPECT_EQ(spent.starting, 3);
  expect_parts_to_be_all(spent, attempts);
}

TEST(TrainingTime, WhatAnEarlierAttemptHasMadeIsLostByALaterOneThatBeginsBeforeIt) {
  const std::vector<JobAttempt> attempts = {
      {.started = 0, .steps = steps(0, 4, 0), .failed = 5.5, .ended = 6},
      {.started = 6, .steps = steps(4, 2, 7), .failed = 9.5, .ended = 10},
      {.started = 10, .steps = steps(3, 4, 11), .failed = 16.5, .ended = 16.5}};
  const TimeSpent spent = time_spent(attempts);
  EXPECT_EQ(spent.steps_lost, 1 + 2);
  EXPECT_EQ(spent.kept, 3 + 4);
  expect_parts_to_be_all(spent, attempts);
}

TEST(TrainingTime, AnAttemptThatFailsBeforeItsFirstStepWasAllStart) {
  const std::vector<JobAttempt> attempts = {
      {.started = 0, .steps = steps(0, 2, 0), .failed = 2.5, .ended = 3},
      {.started = 3, .steps = {}, .failed = 5, .ended = 6},
      {.started = 6, .steps = steps(2, 2, 8), .failed = 10.5, .ended = 10.5}};
  const TimeSpent spent = time_spent(attempts);
  EXPECT_EQ(spent.kept, 4);
  EXPECT_EQ(spent.lost, 0);
  EXPECT_EQ(spent.starting, 2 + 2);
  EXPECT_EQ(spent.ending, 0.5 + 1);
  expect_parts_to_be_all(spent, attempts);
}

}  // namespace
}  // namespace cohort::benchmarks
