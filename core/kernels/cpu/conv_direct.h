#pragma once

#include "core/kernels/common/conv_sizes.h"
#include "core/kernels/cpu/epilogue.h"

// Convolutions as plain loops: for float64, and for what oneDNN does not take.
namespace cohort {

template <typename T>
class DirectConv final : public Kernel {  // Conv2D, FusedConv2D
 public:
  explicit DirectConv(const KernelSpec& spec);
  void run(const KernelContext& context) override;

 private:
  ConvSizes s_;
  bool fused_;
  Epilogue<T> epilogue_;
};

template <typename T>
class DirectConvGradInput final : public Kernel {
 public:
  explicit DirectConvGradInput(const KernelSpec& spec) : s_(conv_grad_input_sizes(spec)) {}
  void run(const KernelContext& context) override;

 private:
  ConvSizes s_;
};

template <typename T>
class DirectConvGradFilter final : public Kernel {
 public:
  explicit DirectConvGradFilter(const KernelSpec& spec) : s_(conv_grad_filter_sizes(spec)) {}
  void run(const KernelContext& context) override;

 private:
  ConvSizes s_;
};

}  // namespace cohort
