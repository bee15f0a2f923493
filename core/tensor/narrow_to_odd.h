#pragma once

#include <bit>
#include <cstdint>

namespace cohort {

// The float next to `value` from which rounding to 16 bits gives what rounding `value` itself does:
// where that is no float, the one of its two neighbours whose last bit is 1 (rounding to odd), so
// that no tie is made that was none. Tensors and the kernels of all devices round float64 to 16
// bits by way of it.
constexpr float narrow_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  const bool is_beyond = value > 0 ? back > value : back < value;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (is_beyond ? 1u : 0u)) | 1u);
}

}  // namespace cohort
