#pragma once

#include <type_traits>

namespace cohort {

// What numbers of type T are added and multiplied as: beyond their range integers wrap around, as
// in any kernel, instead of being undefined.
template <typename T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;

template <typename T>
T wrapping_sum(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
}

}  // namespace cohort
