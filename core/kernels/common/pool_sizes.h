#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/kernel.h"

namespace cohort {

// The sizes of a pooling over images [batch, height, width, channels].
struct PoolSizes {
  int64_t batch, in_h, in_w, channels, out_h, out_w;
  int64_t window_h, window_w, stride_h, stride_w, top, left;

  PoolSizes(const Shape& x, const Shape& y, const Attributes& attributes)
      : batch(x[0]), in_h(x[1]), in_w(x[2]), channels(x[3]), out_h(y[1]), out_w(y[2]) {
    using List = std::vector<int64_t>;
    const List &size = attributes.get<List>("size"), &strides = attributes.get<List>("strides");
    const List& pads = attributes.get<List>("pads");
    window_h = size[0], window_w = size[1];
    stride_h = strides[0], stride_w = strides[1];
    top = pads[0], left = pads[2];
  }
};

// Of MaxPool2D and AvgPool2D, and of their gradients.
inline PoolSizes pool_sizes(const KernelSpec& spec) {
  return {spec.inputs[0].shape, spec.outputs[0].shape, spec.attributes};
}
inline PoolSizes max_pool_grad_sizes(const KernelSpec& spec) {
  return {spec.inputs[1].shape, spec.inputs[2].shape, spec.attributes};
}
inline PoolSizes average_pool_grad_sizes(const KernelSpec& spec) {
  return {spec.outputs[0].shape, spec.inputs[0].shape, spec.attributes};
}

}  // namespace cohort
