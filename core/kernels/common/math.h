#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define COHORT_HOST_DEVICE __host__ __device__
#else
#define COHORT_HOST_DEVICE
#endif

// Scalar mathematics for elementwise kernels. The float32 functions are free of branches and calls,
// so that a loop over them becomes vector code; their relative error is below 5e-7 (erf: absolute
// error below 2e-7). Infinities, NaN and subnormal results are as IEEE 754 wants them. The float64
// functions are the standard ones.
namespace cohort::math {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Value of c[0] + c[1] x + c[2] x^2 + ...
template <size_t n>
COHORT_HOST_DEVICE inline float polynomial(float x, const float (&c)[n]) {
  float sum = c[n - 1];
  for (size_t i = n - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

// exp(x) = (1 + remainder) * scale_a * scale_b, with the remainder near zero and powers of two as
// scales: two of them, because 2^128 and the subnormals are not within reach of one.
struct ExpParts {
  float remainder, scale_a, scale_b;
};

COHORT_HOST_DEVICE inline ExpParts exp_parts(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits.
  constexpr float kRounder = 12582912.0f;
  x = x < -104.0f ? -104.0f : x;  // the result is 0 from here on,
  x = x > 89.0f ? 89.0f : x;      // and infinite from there
  const float shifted = x * kLog2E + kRounder;
  const int32_t power = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder);
  const float r = (x - (shifted - kRounder) * kLn2High) - (shifted - kRounder) * kLn2Low;
  const float tail =
      polynomial(r, {1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040});
  const int32_t half = power >> 1;
  const auto power_of_two = [](int32_t n) {
    return std::bit_cast<float>((static_cast<uint32_t>(n) + 127u) << 23);
  };
  return {r + r * r * tail, power_of_two(half), power_of_two(power - half)};
}

COHORT_HOST_DEVICE inline float exp(float x) {
  const ExpParts p = exp_parts(x);
  return (1.0f + p.remainder) * p.scale_a * p.scale_b;
}

COHORT_HOST_DEVICE inline float expm1(float x) {
  const ExpParts p = exp_parts(x);
  const float far = (1.0f + p.remainder) * p.scale_a * p.scale_b - 1.0f;
  return p.scale_a * p.scale_b == 1.0f ? p.remainder : far;
}

COHORT_HOST_DEVICE inline float log(float x) {
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr int32_t kSqrtHalf = 0x3f3504f3;  // bits of sqrt(1/2)
  const bool subnormal = x < std::numeric_limits<float>::min();
  const int32_t bits = std::bit_cast<int32_t>(subnormal ? x * 33554432.0f : x);  // 2^25
  // x = mantissa * 2^exponent with the mantissa in [sqrt(1/2), sqrt(2)).
  const uint32_t offset = static_cast<uint32_t>(bits) - static_cast<uint32_t>(kSqrtHalf);
  const int32_t exponent = (static_cast<int32_t>(offset) >> 23) - (subnormal ? 25 : 0);
  const float f =
      std::bit_cast<float>((offset & 0x7fffffu) + static_cast<uint32_t>(kSqrtHalf)) - 1.0f;
  // log(1 + f) = 2 artanh(s), s = f / (2 + f), arranged so that the leading f is exact.
  const float s = f / (2.0f + f), z = s * s;
  const float tail = z * polynomial(z, {2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9});
  const float half_square = 0.5f * f * f;
  const float e = static_cast<float>(exponent);
  const float y = e * kLn2High + (f - (half_square - (s * (half_square + tail) + e * kLn2Low)));
  const float finite_or_nan =
      x > 0.0f ? y : (x == 0.0f ? -kInfinity : std::numeric_limits<float>::quiet_NaN());
  return x == kInfinity ? x : finite_or_nan;
}

COHORT_HOST_DEVICE inline float log1p(float x) {
  const float u = 1.0f + x;
  const float lost = (x - (u - 1.0f)) / u;  // what rounding took from u, to first order
  return log(u) + (u > 0.0f && u < kInfinity ? lost : 0.0f);
}

COHORT_HOST_DEVICE inline float tanh(float x) {
  const float e = expm1(2.0f * (x > 20.0f ? 20.0f : x));  // tanh is 1 long before 20
  return e / (e + 2.0f);
}

// A polynomial in x^2 near zero; 1 - exp(-polynomial) farther out. Minimax fits.
COHORT_HOST_DEVICE inline float erf(float x) {
  const float size = std::fabs(x);
  const float near = x * polynomial(x * x, {1.12837911f, -0.37612626f, 0.11283585f, -0.02685381f,
                                            0.00518832915f, -8.0102036e-4f, 7.8538933e-5f});
  const float t = size > 4.0f ? 4.0f : size;  // erf(4) rounds to 1
  const float far = 1.0f - exp(-polynomial(t, {3.5371934e-4f, 1.12704003f, 0.63822567f, 0.10303737f,
                                               -0.02180532f, 0.00293960748f, -1.85574027e-4f}));
  return size < 1.0f ? near : std::copysign(far, x);
}

COHORT_HOST_DEVICE inline double exp(double x) { return std::exp(x); }
COHORT_HOST_DEVICE inline double expm1(double x) { return std::expm1(x); }
COHORT_HOST_DEVICE inline double log(double x) { return std::log(x); }
COHORT_HOST_DEVICE inline double log1p(double x) { return std::log1p(x); }
COHORT_HOST_DEVICE inline double tanh(double x) { return std::tanh(x); }
COHORT_HOST_DEVICE inline double erf(double x) { return std::erf(x); }

}  // namespace cohort::math
