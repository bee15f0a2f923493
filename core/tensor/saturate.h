#pragma once

#include <concepts>
#include <limits>

namespace cohort {

// `value` without its fraction; the nearest To where it lies beyond, 0 where it is NaN. Tensors and
// the kernels of all devices convert floating values to integers by this.
template <std::integral To, std::floating_point From>
constexpr To saturate(From value) {
  // The largest To may round up to one too many as a From; the smallest is exact.
  constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
  constexpr To kHalf = std::numeric_limits<To>::max() / 2 + 1;
  constexpr From kEnd = static_cast<From>(kHalf) * 2;
  if (value >= kEnd) return std::numeric_limits<To>::max();
  if (value > kLow) return static_cast<To>(value);
  return value <= kLow ? std::numeric_limits<To>::min() : To(0);
}

}  // namespace cohort
