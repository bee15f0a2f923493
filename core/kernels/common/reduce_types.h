#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace cohort {

// Sums and products of 16-bit floats accumulate in float32, those of integers in int64.
template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double,
                                       std::conditional_t<std::is_integral_v<T>, int64_t, float>>;

// The lowest (sign -1) or highest (sign 1) value of T: infinite where there is one.
template <typename T>
Accumulator<T> extreme(int sign) {
  if constexpr (std::is_integral_v<T>)
    return sign < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  else
    return static_cast<Accumulator<T>>(sign) * std::numeric_limits<Accumulator<T>>::infinity();
}

}  // namespace cohort
