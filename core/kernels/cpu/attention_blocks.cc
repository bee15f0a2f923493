#include "core/kernels/cpu/attention_blocks.h"

#include <dnnl.h>

#include <Eigen/Core>

namespace cohort {
namespace {

template <typename T>
void clear(int64_t m, int64_t n, T* c, int64_t stride) {
  for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * stride, n, T(0));
}

}  // namespace

void multiply(int64_t m, int64_t n, int64_t k, float alpha, Operand<float> a, Operand<float> b,
              bool accumulate, float* c, int64_t c_stride) {
  if (k == 0 && !accumulate) clear(m, n, c, c_stride);
  if (m == 0 || n == 0 || k == 0) return;
  const auto status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                 a.stride, b.data, b.stride, accumulate ? 1.0f : 0.0f, c, c_stride);
  COHORT_CHECK(status == dnnl_success);
}

void multiply(int64_t m, int64_t n, int64_t k, double alpha, Operand<double> a, Operand<double> b,
              bool accumulate, double* c, int64_t c_stride) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  const auto view = [](const Operand<double>& x, int64_t rows, int64_t columns) {
    return Eigen::Map<const Matrix, Eigen::Unaligned, Strides>(
        x.data, rows, columns, x.transposed ? Strides(1, x.stride) : Strides(x.stride, 1));
  };
  if (!accumulate) clear(m, n, c, c_stride);
  Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<>>(c, m, n,
                                                             Eigen::OuterStride<>(c_stride))
      .noalias() += alpha * view(a, m, k) * view(b, k, n);
}

}  // namespace cohort
