#include "core/ops/windows.h"

#include <algorithm>

namespace cohort::ops {
namespace {

// Below it, no sum or product of two numbers and a third overflows.
constexpr int64_t kMaxExtent = INT32_MAX;

void require_extent(int64_t value, int64_t low, std::string_view what) {
  if (value < low || value > kMaxExtent)
    invalid(what, " must be ", low, " to ", kMaxExtent, ", is ", value);
}

// From the first to the last element that a window touches.
int64_t window_span(const Windows& windows, int i) {
  require_extent(windows.size[i], 1, "a window");
  require_extent(windows.strides[i], 1, "a stride");
  require_extent(windows.dilations[i], 1, "a dilation");
  return (windows.size[i] - 1) * windows.dilations[i] + 1;
}

}  // namespace

Size2 size_attribute(const InferenceContext& c, std::string_view name, int64_t low) {
  const auto list = list_attribute(c, name, 2, low);
  return {list[0], list[1]};
}

std::array<int64_t, 4> pads_attribute(const InferenceContext& c) {
  const auto list = list_attribute(c, "pads", 4, 0);
  return {list[0], list[1], list[2], list[3]};
}

Size2 image_size(const Shape& nhwc) { return {nhwc[1], nhwc[2]}; }

Size2 count_windows(const Windows& windows, Size2 image) {
  Size2 counts;
  for (int i = 0; i < 2; ++i) {
    require_extent(image[i], 0, i == 0 ? "the height" : "the width");
    for (int side = 0; side < 2; ++side) require_extent(windows.pads[2 * i + side], 0, "padding");
    const int64_t span = window_span(windows, i);
    const int64_t padded = image[i] + windows.pads[2 * i] + windows.pads[2 * i + 1];
    if (span > padded)
      invalid("a window of ", span, " does not fit into the ", i == 0 ? "height" : "width", " of ",
              padded, ", padding included");
    counts[i] = (padded - span) / windows.strides[i] + 1;
  }
  return counts;
}

std::vector<int64_t> resolve_padding(const Padding& padding, const Windows& windows, Size2 image) {
  if (padding.kind == Padding::Kind::kExplicit)
    return {padding.top, padding.bottom, padding.left, padding.right};
  std::vector<int64_t> pads(4, 0);
  if (padding.kind == Padding::Kind::kValid) return pads;
  for (int i = 0; i < 2; ++i) {
    require_extent(image[i], 0, i == 0 ? "the height" : "the width");
    const int64_t span = window_span(windows, i), stride = windows.strides[i];
    const int64_t outputs = (image[i] + stride - 1) / stride;
    const int64_t total = std::max<int64_t>((outputs - 1) * stride + span - image[i], 0);
    pads[2 * i] = total / 2;
    pads[2 * i + 1] = total - total / 2;
  }
  return pads;
}

}  // namespace cohort::ops
