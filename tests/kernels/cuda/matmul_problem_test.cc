#include "core/kernels/cuda/matmul_problem.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/tensor/tensor.h"

// The library's product, done in plain loops, against the definition of MatMul.
namespace cohort::cuda {
namespace {

Tensor ramp(const Shape& shape, double shift) {
  Tensor t(DType::kFloat64, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<double>()[i] = std::sin(static_cast<double>(i) + shift);
  return t;
}

// Element (row, column) of a library's matrix, transposed or not.
double at(const MatMulProblem::Matrix& matrix, const Tensor& memory, int64_t batch, int64_t row,
          int64_t column, bool transposed) {
  const int64_t r = transposed ? column : row, c = transposed ? row : column;
  EXPECT_LT(r, matrix.rows);
  EXPECT_LT(c, matrix.columns);
  return memory.data<double>()[batch * matrix.batch_stride + c * matrix.rows + r];
}

std::vector<double> multiply(const MatMulProblem& p, const Tensor& a, const Tensor& b,
                             const Shape& shape) {
  Tensor y(DType::kFloat64, shape);
  for (int64_t batch = 0; batch < p.batches; ++batch)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += at(p.first, b, batch, i, k, p.transpose_first) *
                 at(p.second, a, batch, k, j, p.transpose_second);
        y.data<double>()[batch * p.result.batch_stride + j * p.result.rows + i] = sum;
      }
  return {y.values<double>().begin(), y.values<double>().end()};
}

struct Case {
  Shape a, b, y;
  bool transpose_a, transpose_b;
};

std::vector<double> by_definition(const Case& c, const Tensor& a, const Tensor& b) {
  const int64_t rows = c.y.dim(-2), columns = c.y.dim(-1),
                inner = c.transpose_a ? c.a.dim(-2) : c.a.dim(-1),
                batches = c.y.count(0, c.y.rank() - 2);
  std::vector<double> y;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const double* from_a = a.data<double>() + batch * rows * inner;
        const double* from_b = b.data<double>() + (c.b.rank() == 2 ? 0 : batch * inner * columns);
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += from_a[c.transpose_a ? k * rows + i : i * inner + k] *
                 from_b[c.transpose_b ? j * inner + k : k * columns + j];
        y.push_back(sum);
      }
  return y;
}

TEST(MatMulProblem, IsTheProductOfTheTransposes) {
  const Case cases[] = {{{2, 3}, {3, 5}, {2, 5}, false, false},
                        {{3, 2}, {3, 5}, {2, 5}, true, false},
                        {{2, 3}, {5, 3}, {2, 5}, false, true},
                        {{3, 2}, {5, 3}, {2, 5}, true, true},
                        {{4, 2, 3}, {4, 3, 5}, {4, 2, 5}, false, false},
                        {{4, 3, 2}, {4, 5, 3}, {4, 2, 5}, true, true},
                        {{2, 2, 2, 3}, {2, 2, 3, 1}, {2, 2, 2, 1}, false, false},
                        {{4, 2, 3}, {3, 5}, {4, 2, 5}, false, false},
                        {{4, 2, 3}, {5, 3}, {4, 2, 5}, false, true},
                        {{1, 1}, {1, 1}, {1, 1}, false, false},
                        {{2, 0}, {0, 3}, {2, 3}, false, false}};
  for (const Case& c : cases) {
    const Attributes attributes = {{"transpose_a", c.transpose_a}, {"transpose_b", c.transpose_b}};
    const Tensor a = ramp(c.a, 0), b = ramp(c.b, 100);
    const MatMulProblem problem(
        {"MatMul", {a.spec(), b.spec()}, {{DType::kFloat64, c.y}}, attributes, Device{}, 1});
    const auto got = multiply(problem, a, b, c.y), want = by_definition(c, a, b);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-12) << c.a << " " << c.b << " element " << i;
  }
}

MatMulProblem of_batches(int64_t batches) {
  static const Attributes kPlain = {{"transpose_a", false}, {"transpose_b", false}};
  return MatMulProblem({"MatMul",
                        {{DType::kBFloat16, {batches, 2, 3}}, {DType::kBFloat16, {batches, 3, 4}}},
                        {{DType::kFloat32, {batches, 2, 4}}},
                        kPlain,
                        Device{},
                        1});
}

TEST(MatMulProblem, IsDoneInSlicesOfAsManyBatchesAsACallTakes) {
  constexpr int64_t kMost = MatMulProblem::kMostBatches;
  for (const int64_t batches : {int64_t{1}, kMost, kMost + 1, 2 * kMost, 2 * kMost + 1,
                                int64_t{8192} * 12, int64_t{1} << 20}) {
    const MatMulProblem problem = of_batches(batches);
    EXPECT_LE(problem.slice_batches(), kMost) << batches;
    int64_t done = 0;
    for (int64_t slice = 0; slice < problem.slices(); ++slice) {
      EXPECT_GE(problem.first_batch(slice), 0) << batches;
      EXPECT_LE(problem.first_batch(slice), done) << batches << " batches: some are left out";
      EXPECT_LT(done - problem.first_batch(slice), problem.slices()) << batches;
      done = problem.first_batch(slice) + problem.slice_batches();
    }
    EXPECT_EQ(done, batches);
    EXPECT_EQ(problem.slices() == 1, batches <= kMost) << batches;
  }
}

TEST(MatMulProblem, FindsABatchInEachMatrix) {
  const MatMulProblem problem = of_batches(100'000);
  EXPECT_EQ(problem.first.offset(70'000), 70'000u * 3 * 4 * 2);
  EXPECT_EQ(problem.second.offset(70'000), 70'000u * 2 * 3 * 2);
  EXPECT_EQ(problem.result.offset(70'000), 70'000u * 2 * 4 * 4);
}

MatMulEpilogue epilogue(DType dtype, DType bias, const std::string& activation) {
  const Attributes attributes = {
      {"transpose_a", false}, {"transpose_b", false}, {"activation", activation}};
  return choose_epilogue({"FusedMatMul",
                          {{dtype, {2, 3}}, {dtype, {3, 4}}, {bias, {4}}},
                          {{bias, {2, 4}}},
                          attributes,
                          Device{},
                          1});
}

TEST(MatMulEpilogue, OfTheLibraryHasBiasAndTheTanhGelu) {
  EXPECT_TRUE(epilogue(DType::kFloat32, DType::kFloat32, "").complete);
  EXPECT_TRUE(epilogue(DType::kBFloat16, DType::kFloat32, "").bias);
  EXPECT_TRUE(epilogue(DType::kFloat16, DType::kFloat16, "GeluTanh").gelu);
}

TEST(MatMulEpilogue, LeavesWhatTheLibraryLacks) {
  EXPECT_FALSE(epilogue(DType::kFloat32, DType::kFloat32, "Gelu").complete) << "that by erf";
  EXPECT_FALSE(epilogue(DType::kFloat32, DType::kFloat32, "Silu").complete);
  EXPECT_FALSE(epilogue(DType::kFloat32, DType::kFloat32, "Relu").complete) << "that of NaN";
  EXPECT_FALSE(epilogue(DType::kFloat64, DType::kFloat64, "").complete);
}

}  // namespace
}  // namespace cohort::cuda
