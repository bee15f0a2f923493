#include <algorithm>
#include <cmath>

#include "core/nn/convolution.h"
#include "core/nn/image_layer.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::nn {
namespace {

Value repeat_pixels(const Value& x, Size2D size) {
  const Shape& s = x.shape();
  const Value apart = ops::reshape(x, {s[0], s[1], 1, s[2], 1, s[3]});
  const Value repeated =
      ops::broadcast_to(apart, {s[0], s[1], size.height, s[2], size.width, s[3]});
  return ops::reshape(repeated, {s[0], s[1] * size.height, s[2] * size.width, s[3]});
}

// [from, factor * from]: the share of each pixel of a line in each of the longer one, whose centres
// lie between those of two pixels, and at the ends beyond the last.
Tensor linear_shares(int64_t from, int64_t factor) {
  const int64_t to = factor * from;
  Tensor shares = Tensor::zeros(DType::kFloat64, {from, to});
  for (int64_t i = 0; i < to; ++i) {
    const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(factor) - 0.5;
    const auto before = static_cast<int64_t>(std::floor(place));
    const double beyond = place - static_cast<double>(before);
    const auto add = [&](int64_t pixel, double share) {
      shares.data<double>()[std::clamp<int64_t>(pixel, 0, from - 1) * to + i] += share;
    };
    add(before, 1 - beyond);
    add(before + 1, beyond);
  }
  return shares;
}

// Each axis by a product with the shares of its pixels.
Value interpolate(const Value& x, Size2D size) {
  const auto along_last = [](const Value& v, int64_t factor) {
    const Tensor shares = linear_shares(v.shape().dim(-1), factor);
    return ops::matmul(v, ops::constant(shares.cast(v.dtype())));
  };
  const Value tall = along_last(ops::transpose(x, {0, 2, 3, 1}), size.height);
  const Value large = along_last(ops::transpose(tall, {0, 3, 2, 1}), size.width);
  return ops::transpose(large, {0, 1, 3, 2});
}

}  // namespace

Layer ZeroPadding2D(const Padding& padding, std::string name) {
  if (padding.kind != Padding::Kind::kExplicit ||
      std::min({padding.top, padding.bottom, padding.left, padding.right}) < 0)
    invalid("ZeroPadding2D: the padding must be explicit and not negative");
  return std::make_shared<ImageLayer>("ZeroPadding2D", std::move(name), [padding](const Value& x) {
    return ops::pad(x, {0, padding.top, padding.left, 0}, {0, padding.bottom, padding.right, 0});
  });
}

Layer UpSampling2D(Size2D size, const UpSampling2DOptions& options) {
  check_positive("UpSampling2D", "size", std::min(size.height, size.width));
  const auto enlarge =
      options.interpolation == Interpolation::kNearest ? repeat_pixels : interpolate;
  return std::make_shared<ImageLayer>("UpSampling2D", options.name,
                                      [=](const Value& x) { return enlarge(x, size); });
}

}  // namespace cohort::nn
