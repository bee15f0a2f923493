#include "core/kernels/cuda/floating_kernel.h"
#include "core/kernels/cuda/row_math.h"

// Softmax and LogSoftmax over the last axis, and their gradients. A thread reads and writes the
// same elements in every pass over its row, so that y may be x and dx dy or y.
namespace cohort::cuda {
namespace {

enum class Form { kSoftmax, kLogSoftmax };

template <typename T>
void softmax(const KernelContext& context, RowSizes sizes, Form form) {
  const T* x = context.input<T>(0);
  T* y = context.output<T>(0);
  const int64_t n = sizes.columns;
  const bool log = form == Form::kLogSoftmax;
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T* from = x + row * n;
    T* to = y + row * n;
    const T high = max_of(team, from, n);
    const T sum = sum_over<T>(team, n, [=](int64_t i) { return math::exp(from[i] - high); });
    // x - max comes first: it is exact where max + log(sum) would round the log away.
    const T log_sum = math::log(sum), scale = 1 / sum;
    for (int64_t i = team.rank(); i < n; i += team.size())
      to[i] = log ? (from[i] - high) - log_sum : math::exp(from[i] - high) * scale;
  });
}

template <typename T>
void softmax_grad(const KernelContext& context, RowSizes sizes, Form form) {
  const T *dy = context.input<T>(0), *y = context.input<T>(1);
  T* dx = context.output<T>(0);
  const int64_t n = sizes.columns;
  const bool log = form == Form::kLogSoftmax;
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T *slope = dy + row * n, *value = y + row * n;
    T* to = dx + row * n;
    const T sum =
        sum_over<T>(team, n, [=](int64_t i) { return log ? slope[i] : slope[i] * value[i]; });
    for (int64_t i = team.rank(); i < n; i += team.size())
      to[i] = log ? slope[i] - math::exp(value[i]) * sum : value[i] * (slope[i] - sum);
  });
}

template <typename T, Form form>
class Softmax : public Kernel {
 public:
  explicit Softmax(const KernelSpec& spec) : sizes_(spec.inputs[0].shape) {}
  bool can_run_in_place(int, int) const override { return true; }
  void run(const KernelContext& context) override { softmax<T>(context, sizes_, form); }

 private:
  RowSizes sizes_;
};

template <typename T, Form form>
class SoftmaxGrad : public Kernel {
 public:
  explicit SoftmaxGrad(const KernelSpec& spec) : sizes_(spec.inputs[0].shape) {}
  bool can_run_in_place(int, int) const override { return true; }
  void run(const KernelContext& context) override { softmax_grad<T>(context, sizes_, form); }

 private:
  RowSizes sizes_;
};

template <typename T>
using PlainSoftmax = Softmax<T, Form::kSoftmax>;
template <typename T>
using LogSoftmax = Softmax<T, Form::kLogSoftmax>;
template <typename T>
using PlainSoftmaxGrad = SoftmaxGrad<T, Form::kSoftmax>;
template <typename T>
using LogSoftmaxGrad = SoftmaxGrad<T, Form::kLogSoftmax>;

COHORT_REGISTER_KERNEL("Softmax", kGpu, make_floating<PlainSoftmax>);
COHORT_REGISTER_KERNEL("LogSoftmax", kGpu, make_floating<LogSoftmax>);
COHORT_REGISTER_KERNEL("SoftmaxGrad", kGpu, make_floating<PlainSoftmaxGrad>);
COHORT_REGISTER_KERNEL("LogSoftmaxGrad", kGpu, make_floating<LogSoftmaxGrad>);

}  // namespace
}  // namespace cohort::cuda
