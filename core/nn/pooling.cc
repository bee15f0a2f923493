#include <algorithm>

#include "core/nn/convolution.h"
#include "core/nn/image_layer.h"
#include "core/ops/math_ops.h"

namespace cohort::nn {
namespace {

Layer window_pooling(std::string type, Value (*pool)(const Value&, const ops::Pool2DOptions&),
                     Size2D size, const Pool2DOptions& options) {
  check_positive(type, "pool_size", std::min(size.height, size.width));
  if (std::min(options.strides.height, options.strides.width) < 0)
    invalid(type, ": strides must not be negative");
  const ops::Pool2DOptions pooling{
      .size = size.pair(), .strides = options.strides.pair(), .padding = options.padding};
  return std::make_shared<ImageLayer>(std::move(type), options.name,
                                      [=](const Value& x) { return pool(x, pooling); });
}

}  // namespace

Layer MaxPool2D(Size2D pool_size, const Pool2DOptions& options) {
  return window_pooling("MaxPooling2D", ops::max_pool2d, pool_size, options);
}

Layer AveragePooling2D(Size2D pool_size, const Pool2DOptions& options) {
  return window_pooling("AveragePooling2D", ops::avg_pool2d, pool_size, options);
}

Layer GlobalAveragePooling2D(std::string name) {
  return std::make_shared<ImageLayer>("GlobalAveragePooling2D", std::move(name),
                                      [](const Value& x) {
                                        return ops::reduce_mean(x, {1, 2});
                                      });
}

Layer GlobalMaxPool2D(std::string name) {
  return std::make_shared<ImageLayer>("GlobalMaxPooling2D", std::move(name), [](const Value& x) {
    return ops::reduce_max(x, {1, 2});
  });
}

}  // namespace cohort::nn
