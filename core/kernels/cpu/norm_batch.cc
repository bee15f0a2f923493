#include <cmath>

#include "core/kernels/common/batch_norm.h"
#include "core/kernels/cpu/column_sums.h"
#include "core/kernels/cpu/floating_kernel.h"

// BatchNorm and BatchNormGrad: statistics for each column (channel) over all rows.
namespace cohort {
namespace {

// Two passes over x: one for the statistics, one that normalises.
template <typename T>
class BatchNorm final : public BatchNormKernel {
 public:
  explicit BatchNorm(const KernelSpec& spec)
      : BatchNormKernel(spec),
        sums_(sizes_, 2, layout_),
        scale_(layout_.add(sizes_.columns * sizeof(T))) {}

  void run(const KernelContext& context) override {
    sum_deviations(context);
    const T* gamma = context.input<T>(1);
    T *mean = context.output<T>(1), *variance = context.output<T>(2),
      *scale = scratch_at<T>(context, scale_);
    sums_.for_each_column([&](int64_t c) {
      merge_chunks(context, c, mean[c], variance[c]);
      scale[c] = static_cast<T>(gamma[c] / std::sqrt(variance[c] + epsilon_));
    });
    normalise(context, relu_ ? T(0) : -std::numeric_limits<T>::infinity());
  }

 private:
  // For each chunk the sums of d and d * d, where d is the distance from the chunk's first row:
  // with a number near the mean taken off, squares do not drown a small variance.
  void sum_deviations(const KernelContext& context) const {
    const T* x = context.input<T>(0);
    sums_.run(context, [&](int64_t begin, int64_t end, T* sums) {
      const T* origin = x + begin * sizes_.columns;
      add_two_sums(begin, end, sizes_.columns, sums, sums + sizes_.columns,
                   [=](int64_t i, int64_t c, T& a, T& b) {
                     const T d = x[i] - origin[c];
                     a += d;
                     b += d * d;
                   });
    });
  }

  // Chan, Golub and LeVeque's rule for joining the moments of parts.
  void merge_chunks(const KernelContext& context, int64_t c, T& mean, T& variance) const {
    double total = 0, squares = 0;
    for_each_chunk(context, c, [&](double rows, double sum, double, double origin) {
      total += sum + rows * origin;
    });
    const double rows = static_cast<double>(std::max<int64_t>(sizes_.rows, 1)),
                 center = total / rows;
    for_each_chunk(context, c, [&](double rows, double sum, double square_sum, double origin) {
      const double distance = sum / rows + origin - center;
      squares += square_sum - sum * sum / rows + rows * distance * distance;
    });
    mean = static_cast<T>(center);
    variance = static_cast<T>(std::max(squares, 0.0) / rows);
  }

  template <typename F>
  void for_each_chunk(const KernelContext& context, int64_t c, F visit) const {
    for (int64_t chunk = 0; chunk < sums_.num_chunks(); ++chunk) {
      const int64_t begin = sums_.first_row(chunk);
      const T* sums = sums_.chunk_sums(context, chunk);
      visit(static_cast<double>(sums_.first_row(chunk + 1) - begin), sums[c],
            sums[sizes_.columns + c], context.input<T>(0)[begin * sizes_.columns + c]);
    }
  }

  void normalise(const KernelContext& context, T low) const {
    const T *beta = context.input<T>(2), *mean = context.output<T>(1),
            *scale = scratch_at<T>(context, scale_);
    for_each_row(sizes_, [&](int64_t, int64_t offset) {
      const T* x = context.input<T>(0) + offset;
      T* y = context.output<T>(0) + offset;
#pragma omp simd
      for (int64_t c = 0; c < sizes_.columns; ++c) {
        const T value = (x[c] - mean[c]) * scale[c] + beta[c];
        y[c] = value < low ? low : value;  // NaN stays
      }
    });
  }

  ColumnSums<T> sums_;
  size_t scale_;
};

// dx = gamma / stddev * (dy - mean(dy) - xhat * mean(dy * xhat)), with dy 0 where the activation
// was 0.
template <typename T>
class BatchNormGrad final : public BatchNormGradKernel {
 public:
  explicit BatchNormGrad(const KernelSpec& spec)
      : BatchNormGradKernel(spec),
        sums_(sizes_, 2, layout_),
        factors_(layout_.add(3 * sizes_.columns * sizeof(T))) {}

  void run(const KernelContext& context) override {
    const T* dy = context.input<T>(0);
    if (!relu_) return run_with(context, [=](int64_t i) { return dy[i]; });
    const T* y = context.input<T>(kY);
    run_with(context, [=](int64_t i) {
      const T d = dy[i];  // loaded whatever y is, for the sake of vectorisation
      return y[i] > 0 ? d : T(0);
    });
  }

 private:
  template <typename F>
  void run_with(const KernelContext& context, F dy) const {
    const T *x = context.input<T>(1), *mean = context.input<T>(3);
    sums_.run(context, [&](int64_t begin, int64_t end, T* sums) {
      add_two_sums(begin, end, sizes_.columns, sums, sums + sizes_.columns,
                   [=](int64_t i, int64_t c, T& a, T& b) {
                     const T d = dy(i);
                     a += d;
                     b += d * (x[i] - mean[c]);
                   });
    });
    finish_sums(context);
    const T* slope = scratch_at<T>(context, factors_);
    const T *center = slope + sizes_.columns, *pull = center + sizes_.columns;
    for_each_row(sizes_, [&](int64_t, int64_t offset) {
      T* dx = context.output<T>(0);
#pragma omp simd
      for (int64_t c = 0; c < sizes_.columns; ++c) {
        const int64_t i = offset + c;
        dx[i] = slope[c] * (dy(i) - center[c] - (x[i] - mean[c]) * pull[c]);
      }
    });
  }

  // Writes dgamma and dbeta, and for each column the factors of the formula for dx.
  void finish_sums(const KernelContext& context) const {
    const T *gamma = context.input<T>(2), *variance = context.input<T>(4);
    T *dgamma = context.output<T>(1), *dbeta = context.output<T>(2);
    T* slope = scratch_at<T>(context, factors_);
    const double rows = static_cast<double>(std::max<int64_t>(sizes_.rows, 1));
    sums_.for_each_column([&](int64_t c) {
      const double sum = sums_.total(context, 0, c), product = sums_.total(context, 1, c);
      const double rstd = 1 / std::sqrt(variance[c] + epsilon_);
      dbeta[c] = static_cast<T>(sum);
      dgamma[c] = static_cast<T>(product * rstd);
      slope[c] = static_cast<T>(gamma[c] * rstd);
      slope[sizes_.columns + c] = static_cast<T>(sum / rows);
      slope[2 * sizes_.columns + c] = static_cast<T>(product * rstd * rstd / rows);
    });
  }

  ColumnSums<T> sums_;
  size_t factors_;
};

COHORT_REGISTER_KERNEL("BatchNorm", kCpu, make_floating<BatchNorm>);
COHORT_REGISTER_KERNEL("BatchNormGrad", kCpu, make_floating<BatchNormGrad>);

}  // namespace
}  // namespace cohort
