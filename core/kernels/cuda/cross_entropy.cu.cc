#include "core/kernels/common/cross_entropy.h"

#include "core/kernels/common/row_fault.h"
#include "core/kernels/cuda/floating_kernel.h"
#include "core/kernels/cuda/row_math.h"

// Cross-entropy of softmax(logits) with integer labels or with a distribution, and the gradients.
namespace cohort::cuda {
namespace {

// A row whose label is no class is reported, and gets NaN.
template <typename T, typename Label>
void sparse_loss(const KernelContext& context, RowSizes sizes) {
  const T* logits = context.input<T>(0);
  const Label* labels = context.input<Label>(1);
  T *loss = context.output<T>(0), *log_sum = context.output<T>(1);
  KernelFault* fault = context.fault;
  const int32_t number = context.number;
  const int64_t n = sizes.columns;
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T* x = logits + row * n;
    const T high = max_of(team, x, n), total = log_sum_exp(team, x, n, high);
    if (team.rank() != 0) return;
    const auto label = static_cast<int64_t>(labels[row]);
    const bool good = label >= 0 && label < n;
    if (!good) report(fault, number, label, row);
    loss[row] = good ? total - (x[label] - high) : std::numeric_limits<T>::quiet_NaN();
    log_sum[row] = total;
  });
}

template <typename T, typename Label>
void sparse_gradient(const KernelContext& context, RowSizes sizes) {
  const T *dloss = context.input<T>(0), *logits = context.input<T>(1),
          *log_sum = context.input<T>(3);
  const Label* labels = context.input<Label>(2);
  T* dlogits = context.output<T>(0);
  KernelFault* fault = context.fault;
  const int32_t number = context.number;
  const int64_t n = sizes.columns;
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T* x = logits + row * n;
    const T high = max_of(team, x, n);
    const auto label = static_cast<int64_t>(labels[row]);
    if (team.rank() == 0 && (label < 0 || label >= n)) report(fault, number, label, row);
    for (int64_t c = team.rank(); c < n; c += team.size()) {
      const T probability = math::exp((x[c] - high) - log_sum[row]);
      dlogits[row * n + c] = dloss[row] * probability - (c == label ? dloss[row] : T(0));
    }
  });
}

// Of either sparse kernel, on top of what it shares with the one for distributions.
template <typename Base>
class SparseKernel : public Base {
 public:
  SparseKernel(const KernelSpec& spec, size_t labels)
      : Base(spec), label_dtype_(spec.inputs[labels].dtype) {}
  Error describe(const KernelFault& fault) const final {
    return label_error(fault.value, fault.position, this->sizes_.columns);
  }

 protected:
  const DType label_dtype_;
};

template <typename T>
class SparseCrossEntropy final : public SparseKernel<CrossEntropyKernel> {
 public:
  explicit SparseCrossEntropy(const KernelSpec& spec) : SparseKernel(spec, 1) {}
  void run(const KernelContext& context) override {
    dispatch(IntegerTypes{}, label_dtype_, "a label",
             [&]<typename Label>() { sparse_loss<T, Label>(context, sizes_); });
  }
};

template <typename T>
class SparseCrossEntropyGrad final : public SparseKernel<CrossEntropyGradKernel> {
 public:
  explicit SparseCrossEntropyGrad(const KernelSpec& spec) : SparseKernel(spec, kTargets) {}
  void run(const KernelContext& context) override {
    dispatch(IntegerTypes{}, label_dtype_, "a label",
             [&]<typename Label>() { sparse_gradient<T, Label>(context, sizes_); });
  }
};

template <typename T>
void loss_of_targets(const KernelContext& context, RowSizes sizes) {
  const T *logits = context.input<T>(0), *targets = context.input<T>(1);
  T *loss = context.output<T>(0), *log_sum = context.output<T>(1);
  const int64_t n = sizes.columns;
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T *x = logits + row * n, *target = targets + row * n;
    const T high = max_of(team, x, n), total = log_sum_exp(team, x, n, high);
    const T sum =
        sum_over<T>(team, n, [=](int64_t c) { return target[c] * (total - (x[c] - high)); });
    if (team.rank() != 0) return;
    loss[row] = sum;
    log_sum[row] = total;
  });
}

// Exact for targets of any sum.
template <typename T>
void gradient_of_targets(const KernelContext& context, RowSizes sizes) {
  const T *dloss = context.input<T>(0), *logits = context.input<T>(1),
          *targets = context.input<T>(2), *log_sum = context.input<T>(3);
  T* dlogits = context.output<T>(0);
  const int64_t n = sizes.columns;
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T *x = logits + row * n, *target = targets + row * n;
    const T total = sum_over<T>(team, n, [=](int64_t c) { return target[c]; });
    const T high = max_of(team, x, n);
    for (int64_t c = team.rank(); c < n; c += team.size())
      dlogits[row * n + c] =
          dloss[row] * (total * math::exp((x[c] - high) - log_sum[row]) - target[c]);
  });
}

template <typename T>
class CrossEntropy final : public CrossEntropyKernel {
 public:
  using CrossEntropyKernel::CrossEntropyKernel;
  void run(const KernelContext& context) override { loss_of_targets<T>(context, sizes_); }
};

template <typename T>
class CrossEntropyGrad final : public CrossEntropyGradKernel {
 public:
  using CrossEntropyGradKernel::CrossEntropyGradKernel;
  void run(const KernelContext& context) override { gradient_of_targets<T>(context, sizes_); }
};

COHORT_REGISTER_KERNEL("SparseSoftmaxCrossEntropy", kGpu, make_floating<SparseCrossEntropy>);
COHORT_REGISTER_KERNEL("SparseSoftmaxCrossEntropyGrad", kGpu,
                       make_floating<SparseCrossEntropyGrad>);
COHORT_REGISTER_KERNEL("SoftmaxCrossEntropy", kGpu, make_floating<CrossEntropy>);
COHORT_REGISTER_KERNEL("SoftmaxCrossEntropyGrad", kGpu, make_floating<CrossEntropyGrad>);

}  // namespace
}  // namespace cohort::cuda
