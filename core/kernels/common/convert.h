#pragma once

#include <concepts>
#include <type_traits>

#include "core/kernels/common/math.h"
#include "core/tensor/half.h"
#include "core/tensor/narrow_to_odd.h"
#include "core/tensor/saturate.h"

namespace cohort {

// A 16-bit floating value as a float, and back.
template <typename Half>
COHORT_HOST_DEVICE inline float widen(Half value) {
#ifdef __CUDA_ARCH__
  float wide;
  if constexpr (std::is_same_v<Half, bfloat16>)
    wide = std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
  else
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return static_cast<float>(value);
#endif
}

template <typename Half>
COHORT_HOST_DEVICE inline Half narrow(float value) {
#ifdef __CUDA_ARCH__
  Half half;
  if constexpr (std::is_same_v<Half, bfloat16>)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
#else
  return Half(value);
#endif
}

// `value` as a To: to bool is "not zero"; from a floating type to an integer truncates, saturates,
// and makes NaN 0; between integers wraps; 16-bit floating types go through float, and are rounded
// once.
template <typename To, typename From>
COHORT_HOST_DEVICE inline To convert(From value) {
  constexpr bool from_half = std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>;
  constexpr bool to_half = std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (from_half) {
    return convert<To>(widen(value));
  } else if constexpr (to_half && std::is_same_v<From, double>) {
    return narrow<To>(narrow_to_odd(value));
  } else if constexpr (to_half) {
    return narrow<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::floating_point<From> && std::integral<To>) {
    return saturate<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace cohort
