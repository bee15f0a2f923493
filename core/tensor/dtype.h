#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string_view>

#include "core/base/error.h"
#include "core/tensor/half.h"

namespace cohort {

// Element types. The numbers are part of the serialised graph format; never reuse one.
enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kBFloat16 = 2,
  kFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kBool = 7,
};
inline constexpr int kNumDTypes = 8;

size_t dtype_size(DType dtype);  // bytes
bool is_floating(DType dtype);
bool is_half(DType dtype);                 // bfloat16, float16
bool is_integer(DType dtype);              // int32, int64, uint8
std::string_view dtype_name(DType dtype);  // "float32"
// Throws kInvalidArgument that lists the allowed names.
DType dtype_from_name(std::string_view name);
std::ostream& operator<<(std::ostream& out, DType dtype);

// The largest finite number of a floating dtype.
constexpr double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return std::numeric_limits<double>::max();
    case DType::kFloat16:
      return 65504;
    case DType::kBFloat16:
      return 0x1.FEp127;
    default:
      return std::numeric_limits<float>::max();
  }
}

// Maps a C++ type to its DType at compile time.
template <typename T>
struct DTypeOf {
  static_assert(sizeof(T) == 0,
                "elements are float, double, bfloat16, float16, int32_t, int64_t, uint8_t or bool");
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// A list of C++ types, to dispatch a run-time DType over.
template <typename... Ts>
struct TypeList {};
using FloatTypes = TypeList<float, double, bfloat16, float16>;
using IntegerTypes = TypeList<int32_t, int64_t, uint8_t>;
using NumberTypes = TypeList<float, double, bfloat16, float16, int32_t, int64_t, uint8_t>;
using AllTypes = TypeList<float, double, bfloat16, float16, int32_t, int64_t, uint8_t, bool>;

// Calls f.template operator()<T>() for the T of `dtype`. A dtype outside the list throws
// kUnimplemented naming `what`.
template <typename... Ts, typename F>
void dispatch(TypeList<Ts...>, DType dtype, std::string_view what, F&& f) {
  const bool found = ((dtype == dtype_of<Ts> ? (f.template operator()<Ts>(), true) : false) || ...);
  if (!found) fail(Code::kUnimplemented, what, " does not support ", dtype_name(dtype));
}

}  // namespace cohort
