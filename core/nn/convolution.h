#pragma once

#include <string>
#include <utility>

#include "core/nn/activations.h"
#include "core/nn/layer.h"
#include "core/ops/nn_ops.h"

// Convolutions, pooling and resizing of NHWC images, with Keras' names, defaults and weight names.
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
  constraints::Constraint kernel_constraint = {};
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

struct SeparableConv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid();
  Size2D dilations = 1;
  int64_t depth_multiplier = 1;
  Activation activation = {};
  bool use_bias = true;
  initializers::Initializer depthwise_initializer = initializers::glorot_uniform();
  initializers::Initializer pointwise_initializer = initializers::glorot_uniform();
  initializers::Initializer bias_initializer = initializers::zeros();
  regularizers::Regularizer depthwise_regularizer = {};
  regularizers::Regularizer pointwise_regularizer = {};
  regularizers::Regularizer bias_regularizer = {};
  std::string name = {};
};
// Each channel by kernels of its own, and what comes of it pixel by pixel (Chollet 2016). Weights:
// depthwise_kernel [height, width, channels, multiplier], pointwise_kernel [1, 1, channels *
// multiplier, filters], bias [filters].
Layer SeparableConv2D(int64_t filters, Size2D kernel_size,
                      const SeparableConv2DOptions& options = {});

struct Pool2DOptions {
  Size2D strides = 0;  // 0: the pool size
  Padding padding = Padding::valid();
  std::string name = {};
};
// The largest element, or the mean, of each window, in which padding does not count: [batch, h, w,
// c] -> [batch, oh, ow, c].
Layer MaxPool2D(Size2D pool_size = 2, const Pool2DOptions& options = {});
Layer AveragePooling2D(Size2D pool_size = 2, const Pool2DOptions& options = {});
// The same of the whole image: [batch, h, w, c] -> [batch, c].
Layer GlobalAveragePooling2D(std::string name = "");
Layer GlobalMaxPool2D(std::string name = "");

// Zeros around images: so many rows and columns as an explicit padding says.
Layer ZeroPadding2D(const Padding& padding = Padding::explicit_padding(1, 1),
                    std::string name = "");

// Between pixels: the nearest one; or in proportion to the distance from the two around, in height
// and width, where the outermost pixels go on beyond the edges.
enum class Interpolation { kNearest, kBilinear };
struct UpSampling2DOptions {
  Interpolation interpolation = Interpolation::kNearest;
  std::string name = {};
};
// `size` times as many rows and columns.
Layer UpSampling2D(Size2D size = 2, const UpSampling2DOptions& options = {});

}  // namespace cohort::nn
