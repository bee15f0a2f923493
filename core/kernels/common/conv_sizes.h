#pragma once

#include "core/kernels/kernel.h"

namespace cohort {

// The sizes of a 2-D convolution of NHWC images with an HWIO filter, whose input channels are those
// of one group; output channels are group-major.
struct ConvSizes {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w, groups;
  int64_t stride_h, stride_w, dilation_h, dilation_w;
  int64_t top, bottom, left, right;  // padding

  ConvSizes(const Shape& x, const Shape& filter, const Shape& y, const Attributes& attributes);
  constexpr int64_t group_in() const { return in_c / groups; }
  constexpr int64_t group_out() const { return out_c / groups; }
};

// The sizes of a node of each kind, from its spec.
ConvSizes conv_sizes(const KernelSpec& spec);              // Conv2D, FusedConv2D
ConvSizes conv_grad_input_sizes(const KernelSpec& spec);   // Conv2DGradInput
ConvSizes conv_grad_filter_sizes(const KernelSpec& spec);  // Conv2DGradFilter

}  // namespace cohort
