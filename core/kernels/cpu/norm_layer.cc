#include <cmath>

#include "core/kernels/cpu/column_sums.h"
#include "core/kernels/cpu/floating_kernel.h"

// LayerNorm, RmsNorm and their gradients: statistics for each row. A row stays in the first-level
// cache, so that memory is passed over once.
namespace cohort {
namespace {

// Rows of no columns have mean and mean square 0.
template <typename T, typename F>
T mean_over(int64_t n, F f) {
  return sum_over<T>(n, f) / static_cast<T>(std::max<int64_t>(n, 1));
}

template <typename T>
class LayerNorm final : public Kernel {
 public:
  explicit LayerNorm(const KernelSpec& spec)
      : sizes_(spec.inputs[0].shape),
        epsilon_(static_cast<T>(spec.attributes.get<double>("epsilon"))) {}
  bool can_run_in_place(int output, int input) const override { return output == 0 && input == 0; }

  void run(const KernelContext& context) override {
    const T *gamma = context.input<T>(1), *beta = context.input<T>(2);
    const int64_t n = sizes_.columns;
    for_each_row(sizes_, [&](int64_t row, int64_t offset) {
      const T* x = context.input<T>(0) + offset;
      T* y = context.output<T>(0) + offset;
      const T mean = mean_over<T>(n, [=](int64_t c) { return x[c]; });
      const T variance = mean_over<T>(n, [=](int64_t c) { return (x[c] - mean) * (x[c] - mean); });
      const T rstd = 1 / std::sqrt(variance + epsilon_);
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
      context.output<T>(1)[row] = mean;
      context.output<T>(2)[row] = rstd;
    });
  }

 private:
  RowSizes sizes_;
  T epsilon_;
};

template <typename T>
class RmsNorm final : public Kernel {
 public:
  explicit RmsNorm(const KernelSpec& spec)
      : sizes_(spec.inputs[0].shape),
        epsilon_(static_cast<T>(spec.attributes.get<double>("epsilon"))) {}
  bool can_run_in_place(int output, int input) const override { return output == 0 && input == 0; }

  void run(const KernelContext& context) override {
    const T* gamma = context.input<T>(1);
    const int64_t n = sizes_.columns;
    for_each_row(sizes_, [&](int64_t row, int64_t offset) {
      const T* x = context.input<T>(0) + offset;
      T* y = context.output<T>(0) + offset;
      const T rstd =
          1 / std::sqrt(mean_over<T>(n, [=](int64_t c) { return x[c] * x[c]; }) + epsilon_);
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) y[c] = x[c] * rstd * gamma[c];
      context.output<T>(1)[row] = rstd;
    });
  }

 private:
  RowSizes sizes_;
  T epsilon_;
};

// With xhat = (x - mean) * rstd and g = dy * gamma:
//   LayerNorm: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),
//              dgamma = sum(dy * xhat), dbeta = sum(dy)
//   RmsNorm:   the same with mean = 0, without mean(g) and dbeta.
template <typename T, bool kCentered>
class RowNormGrad final : public Kernel {
 public:
  explicit RowNormGrad(const KernelSpec& spec)
      : sizes_(spec.inputs[1].shape), sums_(sizes_, kSums, layout_) {}

  size_t scratch_bytes() const override { return layout_.bytes(); }
  bool can_run_in_place(int output, int input) const override { return output == 0 && input <= 1; }

  void run(const KernelContext& context) override {
    const T* rstds = context.input<T>(kCentered ? 4 : 3);
    sums_.run(context, [&](int64_t begin, int64_t end, T* sums) {
      for (int64_t r = begin; r < end; ++r)
        run_row(context, r * sizes_.columns, kCentered ? context.input<T>(3)[r] : T(0), rstds[r],
                sums);
    });
    sums_.for_each_column([&](int64_t c) {
      for (int k = 0; k < kSums; ++k)
        context.output<T>(1 + k)[c] = static_cast<T>(sums_.total(context, k, c));
    });
  }

 private:
  static constexpr int kSums = kCentered ? 2 : 1;  // dgamma and, of LayerNorm, dbeta

  void run_row(const KernelContext& context, int64_t offset, T mean, T rstd, T* dgamma) const {
    const T *dy = context.input<T>(0) + offset, *x = context.input<T>(1) + offset,
            *gamma = context.input<T>(2);
    const int64_t n = sizes_.columns;
    T* dx = context.output<T>(0) + offset;
    T* dbeta = dgamma + n;
    const T center =
        kCentered ? mean_over<T>(n, [=](int64_t c) { return dy[c] * gamma[c]; }) : T(0);
    const T pull =
        rstd * mean_over<T>(n, [=](int64_t c) { return dy[c] * gamma[c] * (x[c] - mean); });
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) {
      const T xhat = (x[c] - mean) * rstd, d = dy[c];
      dgamma[c] += d * xhat;
      if constexpr (kCentered) dbeta[c] += d;
      dx[c] = rstd * (d * gamma[c] - center - xhat * pull);
    }
  }

  RowSizes sizes_;
  ScratchLayout layout_;
  ColumnSums<T> sums_;
};

template <typename T>
using LayerNormGrad = RowNormGrad<T, true>;
template <typename T>
using RmsNormGrad = RowNormGrad<T, false>;

COHORT_REGISTER_KERNEL("LayerNorm", kCpu, make_floating<LayerNorm>);
COHORT_REGISTER_KERNEL("LayerNormGrad", kCpu, make_floating<LayerNormGrad>);
COHORT_REGISTER_KERNEL("RmsNorm", kCpu, make_floating<RmsNorm>);
COHORT_REGISTER_KERNEL("RmsNormGrad", kCpu, make_floating<RmsNormGrad>);

}  // namespace
}  // namespace cohort
