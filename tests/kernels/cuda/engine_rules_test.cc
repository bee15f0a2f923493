#include "core/kernels/cuda/engine_rules.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

TEST(EngineRules, LeaveTensorCoresOutOfFloat32UnlessTf32IsAllowed) {
  const EngineNotes tensor_cores{.tensor_cores = true};
  EXPECT_FALSE(EngineRules{.float32 = true}.allow(tensor_cores));
  EXPECT_TRUE((EngineRules{.float32 = true, .tf32 = true}.allow(tensor_cores)));
  EXPECT_TRUE(EngineRules{}.allow(tensor_cores));  // of 16-bit operands
  EXPECT_TRUE(EngineRules{.float32 = true}.allow({}));
}

TEST(EngineRules, WantTheSameBitsAtEachRunAndFullSums) {
  for (const bool tf32 : {false, true}) {
    const EngineRules rules{.float32 = true, .tf32 = tf32};
    EXPECT_FALSE(rules.allow({.nondeterministic = true}));
    EXPECT_FALSE(rules.allow({.narrows_operands = true}));
    EXPECT_FALSE(rules.allow({.narrow_sums = true}));
  }
}

TEST(EngineRules, AskForNoOrderOfSumsThatTheGraphGives) {
  const EngineRules rules{.ordered = true};
  EXPECT_TRUE(rules.allow({.nondeterministic = true}));
  EXPECT_FALSE(rules.allow({.narrow_sums = true, .nondeterministic = true}));
}

}  // namespace
}  // namespace cohort::cuda
