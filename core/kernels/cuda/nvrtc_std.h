// What the sources that are compiled at run time use of the C++ library, which the compiler at run
// time does not bring. It stands in for <bit>, <cmath>, <concepts>, <cstdint>, <limits> and
// <type_traits> there, and is included nowhere else: one text under several names, which
// #pragma once would not know.
#ifndef COHORT_NVRTC_STD
#define COHORT_NVRTC_STD

using int8_t = signed char;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

namespace std {

template <typename To, typename From>
__device__ constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

template <typename A, typename B>
inline constexpr bool is_same_v = false;
template <typename A>
inline constexpr bool is_same_v<A, A> = true;

template <typename T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <typename T>
concept floating_point = is_floating_point_v<T>;
template <typename T>
concept integral = !is_floating_point_v<T> && requires(T x) {
  x % x;
};
template <typename T>
inline constexpr bool is_signed_v = T(-1) < T(0);

template <typename T>
struct numeric_limits {  // of integers
  static constexpr bool kSigned = is_signed_v<T>;
  __device__ static constexpr T max() {
    return kSigned ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(~T(0));
  }
  __device__ static constexpr T min() { return kSigned ? T(-max() - 1) : T(0); }
};
template <>
struct numeric_limits<float> {
  __device__ static constexpr float min() { return 1.17549435e-38f; }
  __device__ static constexpr float infinity() { return bit_cast<float>(0x7f800000); }
  __device__ static constexpr float quiet_NaN() { return bit_cast<float>(0x7fc00000); }
};

using ::copysign;
using ::cos;
using ::erf;
using ::exp;
using ::expm1;
using ::fabs;
using ::floor;
using ::fmod;
using ::log;
using ::log1p;
using ::pow;
using ::rint;
using ::sin;
using ::sqrt;
using ::tanh;

}  // namespace std

#endif
