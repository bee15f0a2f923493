#include "core/nn/convolution.h"

#include <algorithm>

#include "core/nn/layer_inputs.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::nn {
namespace {

int64_t channels_of(const std::vector<TensorSpec>& inputs) {
  require_images(only_input(inputs).shape);
  return features_of(inputs[0], 4);
}

// What the convolutions share: their options as the op wants them, kernel, bias and activation.
struct Common {
  ops::Conv2DOptions convolution;
  Size2D size;
  WeightOptions kernel_options;
  bool use_bias;
  WeightOptions bias_options;
  Activation activation;
};

template <typename Options>
Common common_of(const Options& options, Size2D size, int64_t groups,
                 const WeightOptions& kernel_options) {
  return {.convolution = {.strides = options.strides.pair(),
                          .dilations = options.dilations.pair(),
                          .padding = options.padding,
                          .groups = groups},
          .size = size,
          .kernel_options = kernel_options,
          .use_bias = options.use_bias,
          .bias_options = {.initializer = options.bias_initializer,
                           .regularizer = options.bias_regularizer},
          .activation = options.activation};
}

Common common_of(const Conv2DOptions& options, Size2D size) {
  return common_of(options, size, options.groups,
                   {.initializer = options.kernel_initializer,
                    .regularizer = options.kernel_regularizer,
                    .constraint = options.kernel_constraint});
}

class ConvolutionLayer : public LayerBase {
 public:
  ConvolutionLayer(std::string type, std::string name, Common common)
      : LayerBase(std::move(type), std::move(name)), common_(std::move(common)) {}

 protected:
  virtual Value convolve(const Value& x) = 0;

  // A kernel [height, width, in, out], and a bias of `filters` numbers where there is to be one.
  void add_weights(int64_t in, int64_t out, int64_t filters, DType dtype) {
    add_kernel("kernel", in, out, dtype);
    add_bias(filters, dtype);
  }
  void add_kernel(std::string name, int64_t in, int64_t out, DType dtype) {
    const Shape shape{size().height, size().width, in, out};
    kernel_ = &add_weight(std::move(name), shape, common_.kernel_options, dtype);
  }
  void add_bias(int64_t filters, DType dtype) {
    if (common_.use_bias) bias_ = &add_weight("bias", {filters}, common_.bias_options, dtype);
  }

  Value call(const std::vector<Value>& inputs, const CallContext&) final {
    require_images(only_input(inputs).shape());
    Value y = convolve(inputs[0]);
    if (bias_ != nullptr) y = y + bias_->read();
    return common_.activation ? common_.activation(y) : y;
  }

  const ops::Conv2DOptions& convolution() const { return common_.convolution; }
  const Size2D& size() const { return common_.size; }
  Weight& kernel() const { return *kernel_; }

  // The input's channels, which the groups share.
  int64_t grouped_channels(const std::vector<TensorSpec>& inputs) const {
    const int64_t channels = channels_of(inputs), groups = convolution().groups;
    if (channels % groups != 0)
      invalid(channels, " input channels cannot be divided into ", groups, " groups");
    return channels;
  }

  // The convolution by a kernel [height, width, channels, multiplier]: one group for each channel.
  Value by_channel(const Value& x) const {
    const Shape& shape = kernel_->spec().shape;
    require_features(x.shape(), kernel_->spec(), 2);
    ops::Conv2DOptions options = convolution();
    options.groups = shape[2];
    const Value filter =
        ops::reshape(kernel_->read(), {shape[0], shape[1], 1, shape[2] * shape[3]});
    return ops::conv2d(x, filter, options);
  }

 private:
  Common common_;
  Weight *kernel_ = nullptr, *bias_ = nullptr;
};

class Conv2DLayer final : public ConvolutionLayer {
 public:
  Conv2DLayer(int64_t filters, Size2D kernel_size, const Conv2DOptions& options)
      : ConvolutionLayer("Conv2D", options.name, common_of(options, kernel_size)),
        filters_(filters) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const int64_t channels = grouped_channels(inputs);
    add_weights(channels / convolution().groups, filters_, filters_, weight_dtype(inputs[0]));
  }
  Value convolve(const Value& x) override { return ops::conv2d(x, kernel().read(), convolution()); }

 private:
  int64_t filters_;
};

class Conv2DTransposeLayer final : public ConvolutionLayer {
 public:
  Conv2DTransposeLayer(int64_t filters, Size2D kernel_size, const Conv2DOptions& options)
      : ConvolutionLayer("Conv2DTranspose", options.name, common_of(options, kernel_size)),
        filters_(filters) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const int64_t channels = grouped_channels(inputs);
    add_weights(filters_ / convolution().groups, channels, filters_, weight_dtype(inputs[0]));
  }
  Value convolve(const Value& y) override {
    const auto& [strides, dilations, padding, groups] = convolution();
    const int64_t height = image_size(y.shape()[1], size().height, strides.first, dilations.first,
                                      padding.top + padding.bottom);
    const int64_t width = image_size(y.shape()[2], size().width, strides.second, dilations.second,
                                     padding.left + padding.right);
    return ops::conv2d_transpose(y, kernel().read(), {height, width}, convolution());
  }

 private:
  int64_t image_size(int64_t input, int64_t kernel, int64_t stride, int64_t dilation,
                     int64_t padding) const {
    if (convolution().padding.kind == Padding::Kind::kSame) return input * stride;
    return (input - 1) * stride + (kernel - 1) * dilation + 1 - padding;
  }

  int64_t filters_;
};

class DepthwiseConv2DLayer final : public ConvolutionLayer {
 public:
  DepthwiseConv2DLayer(Size2D kernel_size, const DepthwiseConv2DOptions& options)
      : ConvolutionLayer("DepthwiseConv2D", options.name,
                         common_of(options, kernel_size, 1,
                                   {.initializer = options.depthwise_initializer,
                                    .regularizer = options.depthwise_regularizer})),
        multiplier_(options.depth_multiplier) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const int64_t channels = channels_of(inputs);
    add_weights(channels, multiplier_, channels * multiplier_, weight_dtype(inputs[0]));
  }
  Value convolve(const Value& x) override { return by_channel(x); }

 private:
  int64_t multiplier_;
};

class SeparableConv2DLayer final : public ConvolutionLayer {
 public:
  SeparableConv2DLayer(int64_t filters, Size2D kernel_size, const SeparableConv2DOptions& options)
      : ConvolutionLayer("SeparableConv2D", options.name,
                         common_of(options, kernel_size, 1,
                                   {.initializer = options.depthwise_initializer,
                                    .regularizer = options.depthwise_regularizer})),
        filters_(filters),
        multiplier_(options.depth_multiplier),
        pointwise_options_{.initializer = options.pointwise_initializer,
                           .regularizer = options.pointwise_regularizer} {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const int64_t channels = channels_of(inputs);
    const DType dtype = weight_dtype(inputs[0]);
    add_kernel("depthwise_kernel", channels, multiplier_, dtype);
    pointwise_ = &add_weight("pointwise_kernel", {1, 1, channels * multiplier_, filters_},
                             pointwise_options_, dtype);
    add_bias(filters_, dtype);
  }
  Value convolve(const Value& x) override { return ops::conv2d(by_channel(x), pointwise_->read()); }

 private:
  int64_t filters_, multiplier_;
  WeightOptions pointwise_options_;
  Weight* pointwise_ = nullptr;
};

void check_sizes(std::string_view layer, Size2D kernel_size, Size2D strides, Size2D dilations) {
  check_positive(layer, "kernel_size", std::min(kernel_size.height, kernel_size.width));
  check_positive(layer, "strides", std::min(strides.height, strides.width));
  check_positive(layer, "dilations", std::min(dilations.height, dilations.width));
}

void check_options(std::string_view layer, int64_t filters, Size2D kernel_size,
                   const Conv2DOptions& options) {
  check_positive(layer, "filters", filters);
  check_positive(layer, "groups", options.groups);
  check_sizes(layer, kernel_size, options.strides, options.dilations);
  if (filters % options.groups != 0)
    invalid(layer, ": ", filters, " filters cannot be divided into ", options.groups, " groups");
}

}  // namespace

Layer Conv2D(int64_t filters, Size2D kernel_size, const Conv2DOptions& options) {
  check_options("Conv2D", filters, kernel_size, options);
  return std::make_shared<Conv2DLayer>(filters, kernel_size, options);
}

Layer Conv2DTranspose(int64_t filters, Size2D kernel_size, const Conv2DOptions& options) {
  check_options("Conv2DTranspose", filters, kernel_size, options);
  return std::make_shared<Conv2DTransposeLayer>(filters, kernel_size, options);
}

Layer DepthwiseConv2D(Size2D kernel_size, const DepthwiseConv2DOptions& options) {
  check_positive("DepthwiseConv2D", "depth_multiplier", options.depth_multiplier);
  check_sizes("DepthwiseConv2D", kernel_size, options.strides, options.dilations);
  return std::make_shared<DepthwiseConv2DLayer>(kernel_size, options);
}

Layer SeparableConv2D(int64_t filters, Size2D kernel_size, const SeparableConv2DOptions& options) {
  check_positive("SeparableConv2D", "filters", filters);
  check_positive("SeparableConv2D", "depth_multiplier", options.depth_multiplier);
  check_sizes("SeparableConv2D", kernel_size, options.strides, options.dilations);
  return std::make_shared<SeparableConv2DLayer>(filters, kernel_size, options);
}

}  // namespace cohort::nn
