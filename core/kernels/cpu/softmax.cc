#include "core/kernels/cpu/floating_kernel.h"
#include "core/kernels/cpu/row_math.h"

// Softmax and LogSoftmax over the last axis, and their gradients. Each row is read and written once
// from memory, element i after everything else was computed from it, so that y may be x and dx dy
// or y.
namespace cohort {
namespace {

template <typename T>
class RowKernel : public Kernel {
 public:
  explicit RowKernel(const KernelSpec& spec) : sizes_(spec.inputs[0].shape) {}
  bool can_run_in_place(int, int) const final { return true; }

 protected:
  RowSizes sizes_;
};

template <typename T>
class Softmax final : public RowKernel<T> {
 public:
  using RowKernel<T>::RowKernel;

  void run(const KernelContext& context) override {
    const int64_t n = this->sizes_.columns;
    for_each_row(this->sizes_, [&](int64_t, int64_t offset) {
      const T* x = context.input<T>(0) + offset;
      T* y = context.output<T>(0) + offset;
      const T high = max_of(x, n);
      const T sum = sum_over<T>(n, [=](int64_t i) { return y[i] = math::exp(x[i] - high); });
      const T scale = 1 / sum;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    });
  }
};

template <typename T>
class LogSoftmax final : public RowKernel<T> {
 public:
  using RowKernel<T>::RowKernel;

  void run(const KernelContext& context) override {
    const int64_t n = this->sizes_.columns;
    for_each_row(this->sizes_, [&](int64_t, int64_t offset) {
      const T* x = context.input<T>(0) + offset;
      T* y = context.output<T>(0) + offset;
      const T high = max_of(x, n);
      const T log_sum = log_sum_exp(x, n, high);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - high) - log_sum;
    });
  }
};

template <typename T>
class SoftmaxGrad final : public RowKernel<T> {
 public:
  using RowKernel<T>::RowKernel;

  void run(const KernelContext& context) override {
    const int64_t n = this->sizes_.columns;
    for_each_row(this->sizes_, [&](int64_t, int64_t offset) {
      const T *dy = context.input<T>(0) + offset, *y = context.input<T>(1) + offset;
      T* dx = context.output<T>(0) + offset;
      const T dot = sum_over<T>(n, [=](int64_t i) { return dy[i] * y[i]; });
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
    });
  }
};

template <typename T>
class LogSoftmaxGrad final : public RowKernel<T> {
 public:
  using RowKernel<T>::RowKernel;

  void run(const KernelContext& context) override {
    const int64_t n = this->sizes_.columns;
    for_each_row(this->sizes_, [&](int64_t, int64_t offset) {
      const T *dy = context.input<T>(0) + offset, *y = context.input<T>(1) + offset;
      T* dx = context.output<T>(0) + offset;
      const T sum = sum_over<T>(n, [=](int64_t i) { return dy[i]; });
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - math::exp(y[i]) * sum;
    });
  }
};

COHORT_REGISTER_KERNEL("Softmax", kCpu, make_floating<Softmax>);
COHORT_REGISTER_KERNEL("LogSoftmax", kCpu, make_floating<LogSoftmax>);
COHORT_REGISTER_KERNEL("SoftmaxGrad", kCpu, make_floating<SoftmaxGrad>);
COHORT_REGISTER_KERNEL("LogSoftmaxGrad", kCpu, make_floating<LogSoftmaxGrad>);

}  // namespace
}  // namespace cohort
