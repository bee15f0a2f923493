#include "core/kernels/cuda/row_norm_problem.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

RowNormProblem problem(std::string_view op, DType dtype = DType::kBFloat16,
                       const Shape& shape = {3, 4, 5}) {
  const TensorSpec x{dtype, shape}, gamma{DType::kFloat32, {shape.dim(-1)}},
      statistic{DType::kFloat32, shape.without_axis(shape.rank() - 1)};
  const Attributes attributes = {{"epsilon", 0.5}}, none;
  if (op == "LayerNorm")
    return RowNormProblem({op, {x, gamma, gamma}, {x, statistic, statistic}, attributes});
  if (op == "RmsNorm") return RowNormProblem({op, {x, gamma}, {x, statistic}, attributes});
  if (op == "LayerNormGrad")
    return RowNormProblem({op, {x, x, gamma, statistic, statistic}, {x, gamma, gamma}, none});
  return RowNormProblem({op, {x, x, gamma, statistic}, {x, gamma}, none});
}

TEST(RowNormProblem, IsReadFromEachOp) {
  for (const std::string_view op : {"LayerNorm", "RmsNorm", "LayerNormGrad", "RmsNormGrad"}) {
    const RowNormProblem p = problem(op);
    EXPECT_EQ(p.centered, op.starts_with("LayerNorm")) << op;
    EXPECT_EQ(p.gradient, op.ends_with("Grad")) << op;
    EXPECT_EQ(p.epsilon, p.gradient ? 0 : 0.5f) << op;
    EXPECT_EQ(p.dtype, DType::kBFloat16);
    EXPECT_EQ(p.parameter, DType::kFloat32);
    EXPECT_EQ(p.rows, 12);
    EXPECT_EQ(p.columns, 5);
  }
}

TEST(RowNormProblem, IsForLibrariesInSixteenBits) {
  EXPECT_TRUE(problem("LayerNorm").is_for_libraries());
  EXPECT_TRUE(problem("RmsNormGrad", DType::kFloat16).is_for_libraries());

  EXPECT_FALSE(problem("LayerNorm", DType::kFloat32).is_for_libraries());
  EXPECT_FALSE(problem("RmsNorm", DType::kFloat64).is_for_libraries());
  EXPECT_FALSE(problem("LayerNorm", DType::kBFloat16, {0, 4}).is_for_libraries());
  EXPECT_FALSE(problem("LayerNorm", DType::kBFloat16, {3, 0}).is_for_libraries());
}

}  // namespace
}  // namespace cohort::cuda
