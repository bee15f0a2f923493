#pragma once

#include <string>
#include <utility>

#include "core/nn/activations.h"
#include "core/nn/layer.h"
#include "core/ops/nn_ops.h"

// Convolutions of NHWC images, with Keras' names, defaults and weight names.
namespace cohort::nn {

using Padding = ops::Padding;

// Height and width; one number stands for both.
struct Size2D {
  Size2D(int64_t both) : height(both), width(both) {}  // NOLINT: `.strides = 2`
  Size2D(int64_t rows, int64_t columns) : height(rows), width(columns) {}
  std::pair<int64_t, int64_t> pair() const { return {height, width}; }
  int64_t height, width;
};

struct Conv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid();
  Size2D dilations = 1;
  int64_t groups = 1;
  Activation activation = {};
  bool use_bias = true;
  initializers::Initializer kernel_initializer = initializers::glorot_uniform();
  initializers::Initializer bias_initializer = initializers::zeros();
  regularizers::Regularizer kernel_regularizer = {};
  regularizers::Regularizer bias_regularizer = {};
  std::string name = {};
};
// Weights: kernel [height, width, input channels / groups, filters], bias [filters].
Layer Conv2D(int64_t filters, Size2D kernel_size, const Conv2DOptions& options = {});
// Weights: kernel [height, width, filters / groups, input channels], bias [filters]. The output is
// input * stride with same padding, and the smallest image that the kernel maps to the input
// otherwise.
Layer Conv2DTranspose(int64_t filters, Size2D kernel_size, const Conv2DOptions& options = {});

struct DepthwiseConv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid();
  Size2D dilations = 1;
  int64_t depth_multiplier = 1;
  Activation activation = {};
  bool use_bias = true;
  initializers::Initializer depthwise_initializer = initializers::glorot_uniform();
  initializers::Initializer bias_initializer = initializers::zeros();
  regularizers::Regularizer depthwise_regularizer = {};
  regularizers::Regularizer bias_regularizer = {};
  std::string name = {};
};
// Each channel by kernels of its own. Weights: kernel [height, width, channels, multiplier], bias.
Layer DepthwiseConv2D(Size2D kernel_size, const DepthwiseConv2DOptions& options = {});

struct Pool2DOptions {
  Size2D strides = 0;  // 0: the pool size
  Padding padding = Padding::valid();
  std::string name = {};
};
// The largest element, or the mean, of each window: [batch, h, w, c] -> [batch, oh, ow, c].
Layer MaxPool2D(Size2D pool_size = 2, const Pool2DOptions& options = {});
Layer AveragePooling2D(Size2D pool_size = 2,
                       const Pool2DOptions& options = {});  // padding does not count
// The same of the whole image: [batch, h, w, c] -> [batch, c].
Layer GlobalAveragePooling2D(std::string name = "");
Layer GlobalMaxPool2D(std::string name = "");

}  // namespace cohort::nn
