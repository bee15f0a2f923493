#include <cmath>

#include "core/kernels/common/batch_norm.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/floating_kernel.h"

// BatchNorm and its gradient, each with a ReLU behind it on request: statistics for each channel,
// the last axis.
namespace cohort::cuda {
namespace {

// For each chunk the sums of d and d * d, where d is the distance from the chunk's first row: with
// a number near the mean taken off, squares do not drown a small variance.
template <typename T>
void sum_deviations(Stream& stream, const ColumnChunks& chunks, const T* x, Pair<T>* partial) {
  const int64_t n = chunks.columns;
  sum_chunks<T>(stream, chunks, partial,
                [=] COHORT_DEVICE(int64_t row, int64_t c, int64_t first) -> Pair<T> {
                  const T d = x[row * n + c] - x[first * n + c];
                  return {d, d * d};
                });
}

// Chan, Golub and LeVeque's rule for joining the moments of parts. scales[c] is what normalising
// multiplies by.
template <typename T>
void merge_chunks(const KernelContext& context, const ColumnChunks& chunks, double epsilon,
                  const Pair<T>* partial, T* scales) {
  const T *x = context.input<T>(0), *gamma = context.input<T>(1);
  T *means = context.output<T>(1), *variances = context.output<T>(2);
  const int64_t n = chunks.columns;
  const double divisor = static_cast<double>(std::max<int64_t>(chunks.rows, 1));
  for_each_column(*context.stream, chunks, [=] COHORT_DEVICE(const Team& team, int64_t c) {
    double total = 0, squares = 0;
    for (int64_t k = team.rank(); k < chunks.chunks; k += team.size()) {
      const int64_t first = chunks.first_row(k);
      const double rows = static_cast<double>(chunks.first_row(k + 1) - first);
      total += partial[k * n + c].a + rows * x[first * n + c];
    }
    const double center = team.sum(total) / divisor;
    for (int64_t k = team.rank(); k < chunks.chunks; k += team.size()) {
      const int64_t first = chunks.first_row(k);
      const double rows = static_cast<double>(chunks.first_row(k + 1) - first);
      const double sum = partial[k * n + c].a;
      const double distance = sum / rows + x[first * n + c] - center;
      squares += partial[k * n + c].b - sum * sum / rows + rows * distance * distance;
    }
    squares = team.sum(squares);
    if (team.rank() != 0) return;
    means[c] = static_cast<T>(center);
    variances[c] = static_cast<T>((squares > 0 ? squares : 0) / divisor);
    scales[c] = static_cast<T>(gamma[c] / std::sqrt(variances[c] + epsilon));
  });
}

template <typename T>
void normalise(const KernelContext& context, RowSizes sizes, const T* scales, bool relu) {
  const T *x = context.input<T>(0), *beta = context.input<T>(2), *means = context.output<T>(1);
  T* y = context.output<T>(0);
  const int64_t n = sizes.columns;
  for_each_element(*context.stream, sizes.rows * n, [=] COHORT_DEVICE(int64_t i) {
    const int64_t c = i % n;
    const T value = (x[i] - means[c]) * scales[c] + beta[c];
    y[i] = relu && value < 0 ? T(0) : value;  // NaN stays
  });
}

template <typename T>
class BatchNorm final : public BatchNormKernel {
 public:
  explicit BatchNorm(const KernelSpec& spec)
      : BatchNormKernel(spec),
        chunks_(sizes_),
        partial_(layout_.add(static_cast<size_t>(chunks_.sums()) * sizeof(Pair<T>))),
        scales_(layout_.add(static_cast<size_t>(sizes_.columns) * sizeof(T))) {}

  void run(const KernelContext& context) override {
    auto* partial = scratch_at<Pair<T>>(context, partial_);
    auto* scales = scratch_at<T>(context, scales_);
    sum_deviations<T>(*context.stream, chunks_, context.input<T>(0), partial);
    merge_chunks<T>(context, chunks_, epsilon_, partial, scales);
    normalise<T>(context, sizes_, scales, relu_);
  }

 private:
  ColumnChunks chunks_;
  size_t partial_, scales_;
};

// What dx needs of a channel: dx = slope * (dy - center - (x - mean) * pull).
template <typename T>
struct Factors {
  T slope, center, pull;
};

// `y`, where not null, is the output of the ReLU, whose dy is 0 where y is.
template <typename T>
void sum_gradients(const KernelContext& context, const ColumnChunks& chunks, const T* y,
                   Pair<T>* partial) {
  const T *dy = context.input<T>(0), *x = context.input<T>(1), *means = context.input<T>(3);
  const int64_t n = chunks.columns;
  sum_chunks<T>(*context.stream, chunks, partial,
                [=] COHORT_DEVICE(int64_t row, int64_t c, int64_t) -> Pair<T> {
                  const int64_t i = row * n + c;
                  const T d = y == nullptr || y[i] > 0 ? dy[i] : T(0);
                  return {d, d * (x[i] - means[c])};
                });
}

// Writes dgamma and dbeta, and the factors.
template <typename T>
void finish_sums(const KernelContext& context, const ColumnChunks& chunks, double epsilon,
                 const Pair<T>* partial, Factors<T>* factors) {
  const T *gamma = context.input<T>(2), *variances = context.input<T>(4);
  T *dgamma = context.output<T>(1), *dbeta = context.output<T>(2);
  const double rows = static_cast<double>(std::max<int64_t>(chunks.rows, 1));
  for_each_column(*context.stream, chunks, [=] COHORT_DEVICE(const Team& team, int64_t c) {
    const Pair<double> total = add_chunks(team, chunks, partial, c);
    if (team.rank() != 0) return;
    const double rstd = 1 / std::sqrt(variances[c] + epsilon);
    dbeta[c] = static_cast<T>(total.a);
    dgamma[c] = static_cast<T>(total.b * rstd);
    factors[c] = {static_cast<T>(gamma[c] * rstd), static_cast<T>(total.a / rows),
                  static_cast<T>(total.b * rstd * rstd / rows)};
  });
}

template <typename T>
void write_input_gradient(const KernelContext& context, RowSizes sizes, const T* y,
                          const Factors<T>* factors) {
  const T *dy = context.input<T>(0), *x = context.input<T>(1), *means = context.input<T>(3);
  T* dx = context.output<T>(0);
  const int64_t n = sizes.columns;
  for_each_element(*context.stream, sizes.rows * n, [=] COHORT_DEVICE(int64_t i) {
    const int64_t c = i % n;
    const Factors<T> f = factors[c];
    const T d = y == nullptr || y[i] > 0 ? dy[i] : T(0);
    dx[i] = f.slope * (d - f.center - (x[i] - means[c]) * f.pull);
  });
}

template <typename T>
class BatchNormGrad final : public BatchNormGradKernel {
 public:
  explicit BatchNormGrad(const KernelSpec& spec)
      : BatchNormGradKernel(spec),
        chunks_(sizes_),
        partial_(layout_.add(static_cast<size_t>(chunks_.sums()) * sizeof(Pair<T>))),
        factors_(layout_.add(static_cast<size_t>(sizes_.columns) * sizeof(Factors<T>))) {}

  void run(const KernelContext& context) override {
    const T* y = relu_ ? context.input<T>(kY) : nullptr;
    auto* partial = scratch_at<Pair<T>>(context, partial_);
    auto* factors = scratch_at<Factors<T>>(context, factors_);
    sum_gradients<T>(context, chunks_, y, partial);
    finish_sums<T>(context, chunks_, epsilon_, partial, factors);
    write_input_gradient<T>(context, sizes_, y, factors);
  }

 private:
  ColumnChunks chunks_;
  size_t partial_, factors_;
};

COHORT_REGISTER_KERNEL("BatchNorm", kGpu, make_floating<BatchNorm>);
COHORT_REGISTER_KERNEL("BatchNormGrad", kGpu, make_floating<BatchNormGrad>);

}  // namespace
}  // namespace cohort::cuda
