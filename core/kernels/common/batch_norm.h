#pragma once

#include "core/kernels/common/row_sizes.h"
#include "core/kernels/common/scratch.h"

namespace cohort {

// What the kernels of BatchNorm on all devices share: x as rows of channels, the attributes, and
// which outputs may take the memory of which inputs.
class BatchNormKernel : public Kernel {
 public:
  explicit BatchNormKernel(const KernelSpec& spec, size_t x = 0)
      : sizes_(spec.inputs[x].shape),
        epsilon_(spec.attributes.get<double>("epsilon")),
        relu_(!spec.attributes.get<std::string>("activation").empty()) {}

  size_t scratch_bytes() const final { return layout_.bytes(); }
  bool can_run_in_place(int output, int input) const override { return output == 0 && input == 0; }

 protected:
  const RowSizes sizes_;
  const double epsilon_;
  const bool relu_;  // behind the normalisation
  ScratchLayout layout_;
};

// The same of BatchNormGrad.
class BatchNormGradKernel : public BatchNormKernel {
 public:
  explicit BatchNormGradKernel(const KernelSpec& spec) : BatchNormKernel(spec, 1) {}
  bool can_run_in_place(int output, int input) const final {
    return output == 0 && (input == 0 || input == 1 || input == kY);
  }

 protected:
  static constexpr int kY = 5;  // the input that is the ReLU's output
};

}  // namespace cohort
