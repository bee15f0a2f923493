#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

double activate(const std::string& name, double x) {
  if (name == "Relu") return x < 0 ? 0 : x;
  if (name == "Tanh") return std::tanh(x);
  if (name == "Gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (name == "GeluTanh")
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}

// Inputs a, b [, bias], one element at a time.
Tensors matmul_reference(const Tensors& inputs, const Attributes& attributes) {
  const Shape &a = inputs[0].shape(), &b = inputs[1].shape();
  const bool ta = attributes.get<bool>("transpose_a"), tb = attributes.get<bool>("transpose_b");
  const int rank = a.rank();
  const int64_t batch = a.count(0, rank - 2), m = a.dim(ta ? -1 : -2), k = a.dim(ta ? -2 : -1);
  const int64_t n = b.dim(tb ? -2 : -1);
  Tensor y(DType::kFloat64, a.with_dim(rank - 2, m).with_dim(rank - 1, n));
  for (int64_t i = 0; i < batch * m * n; ++i) {
    const int64_t group = i / (m * n), row = i / n % m, column = i % n;
    double sum = inputs.size() == 3 ? inputs[2].data<double>()[column] : 0;
    for (int64_t j = 0; j < k; ++j)
      sum += inputs[0].data<double>()[group * m * k + (ta ? j * m + row : row * k + j)] *
             inputs[1].data<double>()[(b.rank() == 2 && rank > 2 ? 0 : group * k * n) +
                                      (tb ? column * k + j : j * n + column)];
    y.data<double>()[i] = activate(attributes.get_or<std::string>("activation", ""), sum);
  }
  return {y};
}

// Rows, columns and what is summed over; odd ones, and none.
const int64_t kSizes[][3] = {{1, 1, 1},  {3, 5, 7}, {33, 17, 65}, {16, 64, 32}, {1, 40, 9},
                             {40, 1, 9}, {0, 3, 2}, {3, 0, 2},    {3, 4, 0},    {0, 0, 0}};

TEST(MatMul, MultipliesInAllFourTranspositions) {
  for (const auto& [m, n, k] : kSizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        check_kernel("MatMul",
                     {random_tensor(ta ? Shape{k, m} : Shape{m, k}, 1),
                      random_tensor(tb ? Shape{n, k} : Shape{k, n}, 2)},
                     {{"transpose_a", ta}, {"transpose_b", tb}}, matmul_reference);
}

// oneDNN gets copies of such matrices where it has no AVX-512.
TEST(MatMul, ReadsLinesAtDistancesThatCachesDoNotLike) {
  check_kernel("MatMul", {random_tensor({16, 512}, 1), random_tensor({512, 512}, 2)},
               {{"transpose_a", false}, {"transpose_b", false}}, matmul_reference);
  check_kernel("MatMul", {random_tensor({512, 512}, 1), random_tensor({512, 16}, 2)},
               {{"transpose_a", true}, {"transpose_b", false}}, matmul_reference);
  check_kernel("FusedMatMul",
               {random_tensor({512, 16}, 1), random_tensor({512, 512}, 2), random_tensor({512}, 3)},
               {{"transpose_a", true}, {"transpose_b", false}, {"activation", std::string("Relu")}},
               matmul_reference);
}

TEST(MatMul, MultipliesEachBatch) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      check_kernel("MatMul",
                   {random_tensor(ta ? Shape{2, 3, 5, 6} : Shape{2, 3, 6, 5}, 1),
                    random_tensor(tb ? Shape{2, 3, 7, 5} : Shape{2, 3, 5, 7}, 2)},
                   {{"transpose_a", ta}, {"transpose_b", tb}}, matmul_reference);
  check_kernel("MatMul", {random_tensor({0, 2, 3}, 1), random_tensor({0, 3, 4}, 2)},
               {{"transpose_a", false}, {"transpose_b", false}}, matmul_reference);
}

TEST(MatMul, SharesOneMatrixAmongBatches) {
  for (const bool tb : {false, true})
    check_kernel("MatMul",
                 {random_tensor({2, 3, 6, 5}, 1), random_tensor(tb ? Shape{7, 5} : Shape{5, 7}, 2)},
                 {{"transpose_a", false}, {"transpose_b", tb}}, matmul_reference);
}

TEST(FusedMatMul, AddsBiasAndActivates) {
  for (const char* activation : {"", "Relu", "Tanh", "Gelu", "GeluTanh"})
    for (const int64_t k : {0, 9})
      check_kernel(
          "FusedMatMul",
          {random_tensor({2, 6, k}, 1), random_tensor({k, 11}, 2), random_tensor({11}, 3)},
          {{"transpose_a", false}, {"transpose_b", false}, {"activation", std::string(activation)}},
          matmul_reference);
}

TEST(FusedMatMul, TakesWhatMatMulTakes) {
  for (const char* activation : {"", "Relu", "Gelu"})
    for (const auto& [m, n, k] : kSizes)
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          check_kernel(
              "FusedMatMul",
              {random_tensor(ta ? Shape{k, m} : Shape{m, k}, 1),
               random_tensor(tb ? Shape{n, k} : Shape{k, n}, 2), random_tensor({n}, 3)},
              {{"transpose_a", ta}, {"transpose_b", tb}, {"activation", std::string(activation)}},
              matmul_reference);
}

TEST(FusedMatMul, MultipliesEachBatch) {
  for (const int64_t batch : {0, 1, 3})
    check_kernel(
        "FusedMatMul",
        {random_tensor({batch, 6, 5}, 1), random_tensor({batch, 5, 7}, 2), random_tensor({7}, 3)},
        {{"transpose_a", false}, {"transpose_b", false}, {"activation", std::string("Relu")}},
        matmul_reference);
}

TEST(FusedMatMul, ReluPassesNaNOnAndGivesExactZeros) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    Tensor a = Tensor::full(DType::kFloat64, {3, 4}, -0.5);
    a.data<double>()[5] = NAN;
    const Tensor b = Tensor::full(dtype, {4, 20}, 1), bias = Tensor::zeros(dtype, {20});
    const Tensor y = run_kernel("FusedMatMul", {a.cast(dtype), b, bias},
                                {{"transpose_a", false},
                                 {"transpose_b", false},
                                 {"activation", std::string("Relu")}})[0]
                         .cast(DType::kFloat64);
    for (int64_t i = 0; i < 60; ++i)
      if (i / 20 == 1)
        EXPECT_TRUE(std::isnan(y.data<double>()[i])) << dtype << " at " << i;
      else
        EXPECT_EQ(y.data<double>()[i], 0) << dtype << " at " << i;
  }
}

}  // namespace
}  // namespace cohort
