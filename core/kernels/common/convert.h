#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

#include "core/kernels/common/math.h"
#include "core/tensor/half.h"

namespace cohort {

// `value` as a To: to bool is "not zero"; from a floating type to an integer truncates, saturates,
// and makes NaN 0; between integers wraps; 16-bit floating types go through float.
template <typename To, typename From>
COHORT_HOST_DEVICE inline To convert(From value) {
  constexpr bool from_half = std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>;
  constexpr bool to_half = std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (from_half) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (to_half) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::floating_point<From> && std::integral<To>) {
    // The largest To may round up to one too many as a From; the smallest is exact.
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    if (value >= kEnd) return std::numeric_limits<To>::max();
    return value > kLow ? static_cast<To>(value)
                        : (value <= kLow ? std::numeric_limits<To>::min() : To(0));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace cohort
