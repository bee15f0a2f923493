#pragma once

#include <array>

#include "core/ops/nn_ops.h"
#include "core/ops/shape_checks.h"

// Windows that slide over NHWC images, shared by convolution and pooling. Internal to core/ops.
namespace cohort::ops {

using Size2 = std::array<int64_t, 2>;  // height, width

struct Windows {
  Size2 size{}, strides{}, dilations{1, 1};
  std::array<int64_t, 4> pads{};  // top, bottom, left, right
};

// Attribute `name`: two numbers of at least `low`.
Size2 size_attribute(const InferenceContext& c, std::string_view name, int64_t low = 1);
std::array<int64_t, 4> pads_attribute(const InferenceContext& c);

// How many windows fit into an image each way; kInvalidArgument where none does, and for numbers
// out of range.
Size2 count_windows(const Windows& windows, Size2 image);
Size2 image_size(const Shape& nhwc);

// The explicit form of `padding`: rows of zeros at the top, bottom, left and right.
std::vector<int64_t> resolve_padding(const Padding& padding, const Windows& windows, Size2 image);

}  // namespace cohort::ops
