#include <array>

#include "tests/kernels/cpu/kernel_testing.h"
#include "tests/testing/error_of.h"

namespace cohort {
namespace {

using namespace testing;

Attributes of_rows(std::vector<int64_t> rows, bool transpose_a = true) {
  return {{"transpose_a", transpose_a}, {"transpose_b", false}, {"rows", std::move(rows)}};
}

double tolerance(DType dtype) {
  return dtype == DType::kFloat64 ? 1e-12 : dtype == DType::kFloat32 ? 1e-4 : 0.3;
}

// Rows [begin, end) of the product of all k rows of a and b, beside the others, which stay
// poisoned.
void check_rows(DType dtype, int64_t m, int64_t n, int64_t k, int64_t begin, int64_t end) {
  const Tensor a = random_tensor(dtype, {k, m}, -1, 1, 1),
               b = random_tensor(dtype, {k, n}, -1, 1, 2);
  const TensorSpec y{dtype, {m, n}};
  const auto whole = to_doubles(run_kernel("MatMul", {a, b}, {y}, of_rows({0, m}))[0]);
  const auto found = to_doubles(run_kernel("MatMul", {a, b}, {y}, of_rows({begin, end}))[0]);
  for (auto i = static_cast<size_t>(begin * n); i < static_cast<size_t>(end * n); ++i)
    ASSERT_NEAR(found[i], whole[i], tolerance(dtype)) << "element " << i;
}

// Products of other sizes are added up in another order.
TEST(MatMulRows, AreThoseOfTheWholeProduct) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{7, 5, 3}, {512, 24, 600}, {33, 64, 1}})
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {2, 5}, {m / 2, m}}) {
        SCOPED_TRACE(str(dtype, " ", m, " x ", n, " x ", k, ", rows ", begin, " to ", end));
        check_rows(dtype, m, n, k, begin, end);
      }
}

TEST(MatMulRows, MustBeSomeOfAProductWithTheFirstFactorTransposed) {
  const Tensor a = random_tensor(DType::kFloat32, {4, 4}, -1, 1), b = a;
  const TensorSpec y{DType::kFloat32, {4, 4}};
  for (const Attributes& wrong : {of_rows({0, 5}), of_rows({-1, 2}), of_rows({2, 2}), of_rows({1}),
                                  of_rows({0, 2}, /*transpose_a=*/false)}) {
    const Error error = error_of([&] { run_kernel("MatMul", {a, b}, {y}, wrong); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("4 rows"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cohort
