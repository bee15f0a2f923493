#include <cmath>

#include "core/kernels/common/batch_norm.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/floating_kernel.h"

// BatchNorm and its gradient, each with a ReLU behind it on request: statistics for each channel,
// the last axis. S is the type of x and its like in memory; parameters and statistics are
// Computed<S>.
namespace cohort::cuda {
namespace {

// For each chunk the sums of d and d * d, where d is the distance from the chunk's first row: with
// a number near the mean taken off, squares do not drown a small variance.
template <typename S, typename T>
void sum_deviations(Stream& stream, const ColumnChunks& chunks, const S* x, Pair<T>* partial) {
  const int64_t n = chunks.columns;
  sum_chunks<T>(stream, chunks, partial,
                [=] COHORT_DEVICE(int64_t row, int64_t c, int64_t first) -> Pair<T> {
                  const T d = convert<T>(x[row * n + c]) - convert<T>(x[first * n + c]);
                  return {d, d * d};
                });
}

// Chan, Golub and LeVeque's rule for joining the moments of parts. scales[c] is what normalising
// multiplies by.
template <typename S, typename T>
void merge_chunks(const KernelContext& context, const ColumnChunks& chunks, double epsilon,
                  const Pair<T>* partial, T* scales) {
  const S* x = context.input<S>(0);
  const T* gamma = context.input<T>(1);
  T *means = context.output<T>(1), *variances = context.output<T>(2);
  const int64_t n = chunks.columns;
  const double divisor = static_cast<double>(std::max<int64_t>(chunks.rows, 1));
  for_each_column(*context.stream, chunks, [=] COHORT_DEVICE(const Team& team, int64_t c) {
    double total = 0, squares = 0;
    for (int64_t k = team.rank(); k < chunks.chunks; k += team.size()) {
      const int64_t first = chunks.first_row(k);
      const double rows = static_cast<double>(chunks.first_row(k + 1) - first);
      total += partial[k * n + c].a + rows * convert<T>(x[first * n + c]);
    }
    const double center = team.sum(total) / divisor;
    for (int64_t k = team.rank(); k < chunks.chunks; k += team.size()) {
      const int64_t first = chunks.first_row(k);
      const double rows = static_cast<double>(chunks.first_row(k + 1) - first);
      const double sum = partial[k * n + c].a;
      const double distance = sum / rows + convert<T>(x[first * n + c]) - center;
      squares += partial[k * n + c].b - sum * sum / rows + rows * distance * distance;
    }
    squares = team.sum(squares);
    if (team.rank() != 0) return;
    means[c] = static_cast<T>(center);
    variances[c] = static_cast<T>((squares > 0 ? squares : 0) / divisor);
    scales[c] = static_cast<T>(gamma[c] / std::sqrt(variances[c] + epsilon));
  });
}

template <typename S, typename T>
void normalise(const KernelContext& context, RowSizes sizes, const T* scales, bool relu) {
  const S* x = context.input<S>(0);
  const T *beta = context.input<T>(2), *means = context.output<T>(1);
  S* y = context.output<S>(0);
  const int64_t n = sizes.columns;
  for_each_element(*context.stream, sizes.rows * n, [=] COHORT_DEVICE(int64_t i) {
    const int64_t c = i % n;
    const T value = (convert<T>(x[i]) - means[c]) * scales[c] + beta[c];
    y[i] = convert<S>(relu && value < 0 ? T(0) : value);  // NaN stays
  });
}

template <typename S>
class BatchNorm final : public BatchNormKernel {
  using T = Computed<S>;

 public:
  explicit BatchNorm(const KernelSpec& spec)
      : BatchNormKernel(spec),
        chunks_(sizes_),
        partial_(layout_.add(static_cast<size_t>(chunks_.sums()) * sizeof(Pair<T>))),
        scales_(layout_.add(static_cast<size_t>(sizes_.columns) * sizeof(T))) {}

  void run(const KernelContext& context) override {
    auto* partial = scratch_at<Pair<T>>(context, partial_);
    auto* scales = scratch_at<T>(context, scales_);
    sum_deviations(*context.stream, chunks_, context.input<S>(0), partial);
    merge_chunks<S>(context, chunks_, epsilon_, partial, scales);
    normalise<S>(context, sizes_, scales, relu_);
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

// dy[i], or 0 where the output of the ReLU, `y` where not null, is.
template <typename T, typename S>
COHORT_DEVICE inline T slope_behind_relu(const S* dy, const S* y, int64_t i) {
  return y == nullptr || convert<T>(y[i]) > 0 ? convert<T>(dy[i]) : T(0);
}

template <typename S, typename T>
void sum_gradients(const KernelContext& context, const ColumnChunks& chunks, const S* y,
                   Pair<T>* partial) {
  const S *dy = context.input<S>(0), *x = context.input<S>(1);
  const T* means = context.input<T>(3);
  const int64_t n = chunks.columns;
  sum_chunks<T>(*context.stream, chunks, partial,
                [=] COHORT_DEVICE(int64_t row, int64_t c, int64_t) -> Pair<T> {
                  const int64_t i = row * n + c;
                  const T d = slope_behind_relu<T>(dy, y, i);
                  return {d, d * (convert<T>(x[i]) - means[c])};
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

template <typename S, typename T>
void write_input_gradient(const KernelContext& context, RowSizes sizes, const S* y,
                          const Factors<T>* factors) {
  const S *dy = context.input<S>(0), *x = context.input<S>(1);
  const T* means = context.input<T>(3);
  S* dx = context.output<S>(0);
  const int64_t n = sizes.columns;
  for_each_element(*context.stream, sizes.rows * n, [=] COHORT_DEVICE(int64_t i) {
    const int64_t c = i % n;
    const Factors<T> f = factors[c];
    const T d = slope_behind_relu<T>(dy, y, i);
    dx[i] = convert<S>(f.slope * (d - f.center - (convert<T>(x[i]) - means[c]) * f.pull));
  });
}

template <typename S>
class BatchNormGrad final : public BatchNormGradKernel {
  using T = Computed<S>;

 public:
  explicit BatchNormGrad(const KernelSpec& spec)
      : BatchNormGradKernel(spec),
        chunks_(sizes_),
        partial_(layout_.add(static_cast<size_t>(chunks_.sums()) * sizeof(Pair<T>))),
        factors_(layout_.add(static_cast<size_t>(sizes_.columns) * sizeof(Factors<T>))) {}

  void run(const KernelContext& context) override {
    const S* y = relu_ ? context.input<S>(kY) : nullptr;
    auto* partial = scratch_at<Pair<T>>(context, partial_);
    auto* factors = scratch_at<Factors<T>>(context, factors_);
    sum_gradients(context, chunks_, y, partial);
    finish_sums(context, chunks_, epsilon_, partial, factors);
    write_input_gradient(context, sizes_, y, factors);
  }

 private:
  ColumnChunks chunks_;
  size_t partial_, factors_;
};

// Mixed precision has parameters in float32; where gamma and beta have 16 bits, all is copied.
template <template <typename> class K, size_t kGamma>
std::unique_ptr<Kernel> make_batch_norm(const KernelSpec& spec) {
  const bool is_copied = dtype_size(spec.inputs[kGamma].dtype) == sizeof(uint16_t);
  return is_copied ? make_floating<K>(spec) : make_stored<K>(spec);
}

COHORT_REGISTER_KERNEL("BatchNorm", kGpu, (make_batch_norm<BatchNorm, 1>));
COHORT_REGISTER_KERNEL("BatchNormGrad", kGpu, (make_batch_norm<BatchNormGrad, 2>));

}  // namespace
}  // namespace cohort::cuda
