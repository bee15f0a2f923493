#pragma once

#include "core/kernels/common/row_sizes.h"
#include "core/kernels/kernel.h"

namespace cohort {

// What the kernels of cross-entropies on all devices share: logits as rows.
class CrossEntropyKernel : public Kernel {
 public:
  explicit CrossEntropyKernel(const KernelSpec& spec) : sizes_(spec.inputs[0].shape) {}

 protected:
  const RowSizes sizes_;
};

// And those of their gradients, which may overwrite logits and distributions.
class CrossEntropyGradKernel : public Kernel {
 public:
  explicit CrossEntropyGradKernel(const KernelSpec& spec)
      : sizes_(spec.inputs[kLogits].shape), sparse_(!is_floating(spec.inputs[kTargets].dtype)) {}
  bool can_run_in_place(int, int input) const final {
    return input == kLogits || (input == kTargets && !sparse_);
  }

 protected:
  static constexpr int kLogits = 1, kTargets = 2;  // targets are labels where it is sparse
  const RowSizes sizes_;

 private:
  const bool sparse_;
};

}  // namespace cohort
