#pragma once

#include <bit>
#include <cstdint>

namespace cohort {

// 16-bit floating types: storage with conversions; arithmetic happens in float.
// Conversions from float round to nearest, ties to even; NaN stays NaN. Those from double go
// through narrow_to_odd().

// 8-bit exponent, 7-bit mantissa: the upper half of a float32.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);  // keep it a (quiet) NaN
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  // NOLINTNEXTLINE: as implicit as from any narrower number
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE 754 binary16.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  // NOLINTNEXTLINE: likewise
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2);

}  // namespace cohort
