#pragma once

#include <memory>

#include "core/kernels/kernel.h"

namespace cohort::cuda {

// What follows a product or a convolution with a bias, input 2 of `spec`, where the library leaves
// it: y = activation(y + bias), in place.
class BiasTail {
 public:
  explicit BiasTail(const KernelSpec& spec);
  size_t scratch_bytes() const { return kernel_->scratch_bytes(); }
  void run(const KernelContext& context, void* scratch) const;

 private:
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace cohort::cuda
