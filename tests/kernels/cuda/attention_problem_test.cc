#include "core/kernels/cuda/attention_problem.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

struct Sizes {
  int64_t queries = 128, keys = 128, size = 64;
  bool causal = true;
  DType dtype = DType::kBFloat16;
  int64_t batch = 2, heads = 3;
};

AttentionProblem problem(const Sizes& s, bool gradient = false) {
  const TensorSpec q{s.dtype, {s.batch, s.queries, s.heads, s.size}},
      k{s.dtype, {s.batch, s.keys, s.heads, s.size}},
      lse{DType::kFloat32, {s.batch, s.heads, s.queries}};
  const Attributes attributes = {{"causal", s.causal}, {"scale", 0.5}};
  if (gradient)
    return AttentionProblem({"AttentionGrad", {q, q, k, k, q, lse}, {q, k, k}, attributes});
  return AttentionProblem({"Attention", {q, k, k}, {q, lse}, attributes});
}

TEST(AttentionProblem, IsReadFromEitherOp) {
  for (const bool gradient : {false, true}) {
    const AttentionProblem p = problem({.queries = 64, .keys = 256}, gradient);
    EXPECT_EQ(p.gradient, gradient);
    EXPECT_EQ(p.batch, 2);
    EXPECT_EQ(p.queries, 64);
    EXPECT_EQ(p.keys, 256);
    EXPECT_EQ(p.heads, 3);
    EXPECT_EQ(p.size, 64);
    EXPECT_EQ(p.scale, 0.5f);
  }
  EXPECT_NE(problem({}, true), problem({}, false));
}

TEST(AttentionProblem, HasNoMaskWhereASingleQuerySeesAllKeys) {
  const AttentionProblem p = problem({.queries = 1, .keys = 9, .causal = true});
  EXPECT_EQ(p, problem({.queries = 1, .keys = 9, .causal = false}));
  EXPECT_TRUE(p.is_for_libraries());
}

TEST(AttentionProblem, IsForLibrariesWhereTheyMayHaveAPlan) {
  EXPECT_TRUE(problem({}).is_for_libraries());
  EXPECT_TRUE(problem({.dtype = DType::kFloat16}).is_for_libraries());
  EXPECT_TRUE(problem({.queries = 5, .keys = 9, .causal = false}).is_for_libraries());
  EXPECT_TRUE(problem({.queries = 7, .keys = 7}).is_for_libraries());
  EXPECT_TRUE(problem({.queries = 64, .keys = 192}).is_for_libraries());
  EXPECT_TRUE(problem({.size = 256}).is_for_libraries());

  EXPECT_FALSE(problem({.dtype = DType::kFloat32}).is_for_libraries());
  EXPECT_FALSE(problem({.size = 20}).is_for_libraries());
  EXPECT_FALSE(problem({.size = 264}).is_for_libraries());
  EXPECT_FALSE(problem({.queries = 5, .keys = 9}).is_for_libraries());
  EXPECT_FALSE(problem({.batch = 0}).is_for_libraries());
}

TEST(AttentionProblem, IsNotForVersionsOfCudnnThatComputeItWrongly) {
  const AttentionProblem out = problem({.queries = 64, .keys = 192}),
                         slopes = problem({.queries = 64, .keys = 192}, true),
                         of_one_key = problem({.queries = 1, .keys = 1}, true),
                         of_whole_blocks = problem({.queries = 64, .keys = 256}, true);
  for (const size_t version : {90800, 90900, 91002, 91400, 91500}) {
    EXPECT_TRUE(out.is_right_in_cudnn(version)) << version;
    EXPECT_FALSE(slopes.is_right_in_cudnn(version)) << version;
    EXPECT_TRUE(of_whole_blocks.is_right_in_cudnn(version)) << version;
  }
  for (const AttentionProblem& p : {out, slopes, of_whole_blocks}) {
    EXPECT_FALSE(p.is_right_in_cudnn(91000));
    EXPECT_FALSE(p.is_right_in_cudnn(91001));
    EXPECT_TRUE(p.is_right_in_cudnn(91501));
    EXPECT_TRUE(p.is_right_in_cudnn(91900));
  }
  EXPECT_FALSE(of_one_key.is_right_in_cudnn(91900));
}

TEST(AttentionProblem, LeavesGradientsToCudnnThatStayFiniteWhateverTheScores) {
  constexpr size_t kVersion = 91900;
  const auto is_right = [](const Sizes& sizes, bool gradient = true) {
    return problem(sizes, gradient).is_right_in_cudnn(kVersion);
  };
  for (const int64_t keys : {64, 192, 1216}) {  // half a block is left
    EXPECT_FALSE(is_right({.keys = keys, .causal = false})) << keys;
    EXPECT_TRUE(is_right({.keys = keys, .causal = true})) << keys;
    EXPECT_TRUE(is_right({.keys = keys, .causal = false}, /*gradient=*/false)) << keys;
  }
  for (const int64_t keys : {128, 300, 1000, 1280}) {
    EXPECT_TRUE(is_right({.keys = keys, .causal = false})) << keys;
    EXPECT_EQ(is_right({.keys = keys, .size = 136, .causal = false}), keys % 128 == 0) << keys;
    EXPECT_TRUE(is_right({.keys = keys, .size = 136, .causal = true})) << keys;
  }
  for (const int64_t keys : {128, 300}) {
    EXPECT_FALSE(is_right({.queries = 1, .keys = keys, .causal = false})) << keys;
    EXPECT_TRUE(is_right({.queries = 1, .keys = keys, .causal = false}, /*gradient=*/false))
        << keys;
  }
}

TEST(AttentionProblem, IsDoneInChunksWhereCudnnKeepsItsScores) {
  const Sizes sizes = {.queries = 8192, .keys = 8192, .batch = 64, .heads = 16};
  const AttentionChunks c = problem(sizes, /*gradient=*/true).chunks();
  EXPECT_EQ(c.batches, 1);
  EXPECT_EQ(c.heads, 8);  // 128 MiB each
  EXPECT_EQ(c.count, 128);
  EXPECT_EQ(problem(sizes).chunks().count, 1);
  EXPECT_EQ(problem({}, /*gradient=*/true).chunks().count, 1);
}

TEST(AttentionProblem, IsNotDoneInChunksThatBeginWhereCudnnCannotRead) {
  for (const int64_t queries : {8188, 8189, 8190, 8192}) {
    const AttentionChunks c =
        problem({.queries = queries, .keys = 8192, .batch = 2, .heads = 9}, true).chunks();
    EXPECT_EQ(c.count > 1, queries % 4 == 0) << queries;
  }
}

}  // namespace
}  // namespace cohort::cuda
