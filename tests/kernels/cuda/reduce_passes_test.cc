#include "core/kernels/cuda/reduce_passes.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

// Every pass takes what the one before made, and the last makes the output.
void expect_chain(const Shape& shape, const std::vector<int64_t>& axes, int64_t outputs) {
  const auto passes = plan_reduce_passes(shape, axes);
  ASSERT_FALSE(passes.empty());
  int64_t elements = shape.num_elements();
  for (const ReducePass& pass : passes) {
    EXPECT_EQ(pass.outer * pass.count * pass.inner, elements) << shape;
    EXPECT_GE(pass.block, 1);
    elements = pass.results();
  }
  EXPECT_EQ(elements, outputs) << shape;
}

TEST(ReducePasses, LeadFromTheInputToTheOutput) {
  expect_chain({7}, {0}, 1);
  expect_chain({1000, 10}, {0}, 10);
  expect_chain({10, 1000}, {1}, 10);
  expect_chain({3, 4, 5, 6}, {0, 2}, 24);
  expect_chain({3, 4, 5, 6}, {1, 3}, 15);
  expect_chain({1 << 25}, {0}, 1);
  expect_chain({1 << 20, 16}, {0}, 16);
  expect_chain({5, 6}, {}, 30);
}

TEST(ReducePasses, OfNothingStillMakeTheOutput) {
  const auto passes = plan_reduce_passes({0, 4}, {0});
  EXPECT_EQ(passes.back().results(), 4);
}

TEST(ReducePasses, FewLongRowsAreCutSoThatTheCardIsBusy) {
  const auto passes = plan_reduce_passes({1 << 25}, {0});
  ASSERT_EQ(passes.size(), 2u);
  EXPECT_GE(passes[0].blocks(), 1024);
}

TEST(ReducePasses, ManyRowsAreReducedAtOnce) {
  EXPECT_EQ(plan_reduce_passes({1 << 16, 1000}, {1}).size(), 1u);
}

TEST(ReducePasses, NoThreadAddsUpManyElementsAloneWhereFewColumnsAreLeft) {
  for (const ReducePass& pass : plan_reduce_passes({1 << 20, 16}, {0})) EXPECT_LE(pass.block, 64);
}

}  // namespace
}  // namespace cohort::cuda
