#include "core/kernels/common/cross_entropy.h"

#include "core/kernels/common/row_fault.h"
#include "core/kernels/cpu/floating_kernel.h"
#include "core/kernels/cpu/row_math.h"

// Cross-entropy of softmax(logits) with integer labels or with a distribution, and the gradients.
namespace cohort {
namespace {

// Integer labels of any width; a label that is no class is kOutOfRange.
class Labels {
 public:
  Labels(const TensorSpec& spec, int64_t classes)
      : dtype_(spec.dtype), count_(spec.shape.num_elements()), classes_(classes) {}

  int64_t at(const void* labels, int64_t i) const {
    switch (dtype_) {
      case DType::kInt32:
        return static_cast<const int32_t*>(labels)[i];
      case DType::kInt64:
        return static_cast<const int64_t*>(labels)[i];
      default:
        return static_cast<const uint8_t*>(labels)[i];
    }
  }

  void check(const void* labels) const {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t label = at(labels, i);
      if (label < 0 || label >= classes_) throw label_error(label, i, classes_);
    }
  }

 private:
  DType dtype_;
  int64_t count_, classes_;
};

template <typename T>
class SparseCrossEntropy final : public CrossEntropyKernel {
 public:
  explicit SparseCrossEntropy(const KernelSpec& spec)
      : CrossEntropyKernel(spec), labels_(spec.inputs[1], sizes_.columns) {}

  void run(const KernelContext& context) override {
    labels_.check(context.inputs[1]);
    for_each_row(sizes_, [&](int64_t row, int64_t offset) {
      const T* logits = context.input<T>(0) + offset;
      const T high = max_of(logits, sizes_.columns);
      const T log_sum = log_sum_exp(logits, sizes_.columns, high);
      context.output<T>(0)[row] = log_sum - (logits[labels_.at(context.inputs[1], row)] - high);
      context.output<T>(1)[row] = log_sum;
    });
  }

 private:
  Labels labels_;
};

template <typename T>
class SparseCrossEntropyGrad final : public CrossEntropyGradKernel {
 public:
  explicit SparseCrossEntropyGrad(const KernelSpec& spec)
      : CrossEntropyGradKernel(spec), labels_(spec.inputs[2], sizes_.columns) {}

  void run(const KernelContext& context) override {
    labels_.check(context.inputs[2]);
    for_each_row(sizes_, [&](int64_t row, int64_t offset) {
      const T dloss = context.input<T>(0)[row], log_sum = context.input<T>(3)[row];
      const T* logits = context.input<T>(1) + offset;
      T* dlogits = context.output<T>(0) + offset;
      const T high = max_of(logits, sizes_.columns);
#pragma omp simd
      for (int64_t c = 0; c < sizes_.columns; ++c)
        dlogits[c] = dloss * math::exp((logits[c] - high) - log_sum);
      dlogits[labels_.at(context.inputs[2], row)] -= dloss;
    });
  }

 private:
  Labels labels_;
};

template <typename T>
class CrossEntropy final : public CrossEntropyKernel {
 public:
  using CrossEntropyKernel::CrossEntropyKernel;

  void run(const KernelContext& context) override {
    for_each_row(sizes_, [&](int64_t row, int64_t offset) {
      const T *logits = context.input<T>(0) + offset, *targets = context.input<T>(1) + offset;
      const T high = max_of(logits, sizes_.columns);
      const T log_sum = log_sum_exp(logits, sizes_.columns, high);
      context.output<T>(0)[row] = sum_over<T>(
          sizes_.columns, [=](int64_t c) { return targets[c] * (log_sum - (logits[c] - high)); });
      context.output<T>(1)[row] = log_sum;
    });
  }
};

// The gradient is exact for targets of any sum.
template <typename T>
class CrossEntropyGrad final : public CrossEntropyGradKernel {
 public:
  using CrossEntropyGradKernel::CrossEntropyGradKernel;

  void run(const KernelContext& context) override {
    for_each_row(sizes_, [&](int64_t row, int64_t offset) {
      const T dloss = context.input<T>(0)[row], log_sum = context.input<T>(3)[row];
      const T *logits = context.input<T>(1) + offset, *targets = context.input<T>(2) + offset;
      T* dlogits = context.output<T>(0) + offset;
      const T total = sum_over<T>(sizes_.columns, [=](int64_t c) { return targets[c]; });
      const T high = max_of(logits, sizes_.columns);
#pragma omp simd
      for (int64_t c = 0; c < sizes_.columns; ++c)
        dlogits[c] = dloss * (total * math::exp((logits[c] - high) - log_sum) - targets[c]);
    });
  }
};

COHORT_REGISTER_KERNEL("SparseSoftmaxCrossEntropy", kCpu, make_floating<SparseCrossEntropy>);
COHORT_REGISTER_KERNEL("SparseSoftmaxCrossEntropyGrad", kCpu,
                       make_floating<SparseCrossEntropyGrad>);
COHORT_REGISTER_KERNEL("SoftmaxCrossEntropy", kCpu, make_floating<CrossEntropy>);
COHORT_REGISTER_KERNEL("SoftmaxCrossEntropyGrad", kCpu, make_floating<CrossEntropyGrad>);

}  // namespace
}  // namespace cohort
