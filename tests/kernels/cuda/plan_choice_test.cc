#include "core/kernels/cuda/plan_choice.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

using Choice = PlanChoice<int>;
constexpr size_t kLarge = Choice::kLargeWorkspace;

TEST(PlanChoice, TakesTheFirstPlanThatIsNotLarge) {
  Choice choice;
  EXPECT_TRUE(choice.offer(1, kLarge));
  EXPECT_EQ(choice.chosen(), 1);
}

TEST(PlanChoice, PassesLargePlansOver) {
  Choice choice;
  EXPECT_FALSE(choice.offer(1, kLarge + 1));
  EXPECT_FALSE(choice.offer(2, 3 * kLarge));
  EXPECT_TRUE(choice.offer(3, 0));
  EXPECT_EQ(choice.chosen(), 3);
}

TEST(PlanChoice, TakesTheQuickestOfLargePlansThatAreNearlyAlike) {
  Choice choice;
  EXPECT_FALSE(choice.offer(1, 4 * kLarge));
  EXPECT_FALSE(choice.offer(2, 4 * kLarge - 128));
  EXPECT_EQ(choice.chosen(), 1);
}

TEST(PlanChoice, TakesAMuchSmallerOneOfLargePlansAlone) {
  Choice choice;
  EXPECT_FALSE(choice.chosen());
  for (const size_t gibibytes : {5, 2, 4, 2})
    EXPECT_FALSE(choice.offer(static_cast<int>(gibibytes), gibibytes * kLarge));
  EXPECT_EQ(choice.chosen(), 2);
}

}  // namespace
}  // namespace cohort::cuda
