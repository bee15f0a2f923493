#include "core/kernels/cuda/conv_problem.h"

#include <optional>
#include <set>

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

using List = std::vector<int64_t>;
constexpr std::array<DType, 3> kFloats = {DType::kFloat32, DType::kFloat32, DType::kFloat32};

// Of [2, 8, 10, 6] with a filter [3, 3, 6 / groups, 4], stride 2.
ConvTask task(List pads, int64_t groups = 1, ConvResult result = ConvResult::kY,
              std::array<DType, 3> dtypes = kFloats, bool tf32 = false) {
  const Attributes attributes = {
      {"strides", List{2, 2}}, {"dilations", List{1, 1}}, {"pads", pads}, {"groups", groups}};
  const Shape y{2, (8 + pads[0] + pads[1] - 3) / 2 + 1, (10 + pads[2] + pads[3] - 3) / 2 + 1, 4};
  const ConvSizes sizes({2, 8, 10, 6}, {3, 3, 6 / groups, 4}, y, attributes);
  return ConvTask(sizes, result, dtypes, tf32);
}

using Dims = std::array<int64_t, 4>;

TEST(ConvTask, NamesChannelsSecondAndLaysThemInnermost) {
  const ConvProblem p = task({1, 1, 1, 1}).problem;
  EXPECT_EQ(p.x.dims, (Dims{2, 6, 8, 10}));
  EXPECT_EQ(p.x.strides, (Dims{480, 1, 60, 6}));
  EXPECT_EQ(p.filter.dims, (Dims{4, 6, 3, 3}));
  EXPECT_EQ(p.filter.strides, (Dims{54, 1, 18, 6}));
  EXPECT_EQ(p.y.dims, (Dims{2, 4, 4, 5}));
}

TEST(ConvTask, LeavesEqualPaddingToTheLibrary) {
  const ConvTask t = task({1, 1, 2, 2});
  EXPECT_FALSE(t.has_border);
  EXPECT_EQ(t.problem.padding, (std::array<int64_t, 2>{1, 2}));
  EXPECT_EQ(t.problem.x.dims, (Dims{2, 6, 8, 10}));
}

TEST(ConvTask, MakesTheRestOfUnequalPaddingABorder) {
  const ConvTask t = task({0, 1, 3, 1});
  EXPECT_TRUE(t.has_border);
  EXPECT_EQ(t.problem.padding, (std::array<int64_t, 2>{0, 1}));
  EXPECT_EQ(t.problem.x.dims, (Dims{2, 6, 9, 12}));
  EXPECT_EQ(t.top, 0);
  EXPECT_EQ(t.left, 2);
}

// What cuDNN works out from the rest of the problem, and compares.
TEST(ConvTask, HasTheOutputThatItsSizesGive) {
  for (const List& pads :
       {List{0, 0, 0, 0}, List{1, 1, 1, 1}, List{0, 1, 3, 1}, List{2, 0, 0, 2}}) {
    const ConvProblem p = task(pads).problem;
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(p.y.dims[i + 2],
                (p.x.dims[i + 2] + 2 * p.padding[i] - p.dilations[i] * (p.filter.dims[i + 2] - 1) -
                 1) / p.strides[i] +
                    1);
  }
}

TEST(ConvTask, GivesTheFilterTheChannelsOfAGroup) {
  EXPECT_EQ(task({0, 0, 0, 0}, 2).problem.filter.dims, (Dims{4, 3, 3, 3}));
}

TEST(ConvProblem, DiffersWhereAPlanWould) {
  constexpr std::array<DType, 3> kHalf = {DType::kFloat16, DType::kFloat16, DType::kFloat16};
  constexpr std::array<DType, 3> kMixed = {DType::kFloat16, DType::kFloat16, DType::kFloat32};
  const std::set<ConvProblem> problems = {
      task({0, 0, 0, 0}).problem,
      task({1, 1, 0, 0}).problem,
      task({0, 0, 0, 0}, 2).problem,
      task({0, 0, 0, 0}, 1, ConvResult::kX).problem,
      task({0, 0, 0, 0}, 1, ConvResult::kFilter).problem,
      task({0, 0, 0, 0}, 1, ConvResult::kY, kHalf).problem,
      task({0, 0, 0, 0}, 1, ConvResult::kY, kMixed).problem,
      task({0, 0, 0, 0}, 1, ConvResult::kY, kFloats, true).problem,
  };
  EXPECT_EQ(problems.size(), 8u);
  EXPECT_EQ(problems.count(task({0, 0, 0, 0}).problem), 1u);
}

std::optional<ConvProblem> fused(const std::string& activation, DType bias) {
  const Attributes attributes = {{"activation", activation}};
  const TensorSpec any{DType::kFloat32, {1}};
  const KernelSpec spec{"FusedConv2D", {any, any, {bias, {4}}}, {any}, attributes, Device{}, 1};
  return with_epilogue(task({0, 0, 0, 0}).problem, spec);
}

TEST(ConvProblem, HasWordsForABias) {
  const ConvProblem alone = task({0, 0, 0, 0}).problem, sum = fused("", DType::kFloat32).value();
  EXPECT_TRUE(sum.bias);
  EXPECT_NE(alone, sum);
}

TEST(ConvProblem, HasNoWordsForActivationsAndOtherTypes) {
  EXPECT_FALSE(fused("Relu", DType::kFloat32)) << "of NaN";
  EXPECT_FALSE(fused("Sigmoid", DType::kFloat32));
  EXPECT_FALSE(fused("", DType::kBFloat16));
}

TEST(ConvProblem, OfAConvolutionAloneHasNoEpilogue) {
  const Attributes none;
  const TensorSpec any{DType::kFloat32, {1}};
  EXPECT_FALSE(
      with_epilogue(task({0, 0, 0, 0}).problem, {"Conv2D", {any, any}, {any}, none, Device{}, 1}));
}

// Whether float32 may be rounded to TF32 is no matter of other types.
TEST(ConvProblem, OfSixteenBitsKnowsNoTf32) {
  constexpr std::array<DType, 3> kHalf = {DType::kBFloat16, DType::kBFloat16, DType::kBFloat16};
  EXPECT_EQ(task({0, 0, 0, 0}, 1, ConvResult::kY, kHalf, true).problem,
            task({0, 0, 0, 0}, 1, ConvResult::kY, kHalf, false).problem);
}

}  // namespace
}  // namespace cohort::cuda
