#pragma once

#include <concepts>
#include <type_traits>

#include "core/kernels/common/math.h"

// The scalar operations of elementwise_program.h as function objects for host and device, each
// templated on the type that it computes in: float, double, or int64_t for integers and booleans.
// Those that need real numbers are constrained to floating types. Maximum, Minimum and Relu pass
// NaN on.
namespace cohort::functors {

template <typename T>
concept Real = std::floating_point<T>;

// Integer sums and products wrap around like the hardware's.
template <typename T>
COHORT_HOST_DEVICE inline T wrapping(T a, T b, auto op) {
  if constexpr (Real<T>)
    return op(a, b);
  else
    return static_cast<T>(op(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

#define COHORT_UNARY(name, constraint, expression) \
  struct name {                                    \
    template <constraint T>                        \
    COHORT_HOST_DEVICE T operator()(T x) const {   \
      return expression;                           \
    }                                              \
  };
#define COHORT_BINARY(name, constraint, expression)   \
  struct name {                                       \
    template <constraint T>                           \
    COHORT_HOST_DEVICE T operator()(T a, T b) const { \
      return expression;                              \
    }                                                 \
  };
// Upstream gradient g; the activation's output or input v.
#define COHORT_GRADIENT(name, ...)                    \
  struct name {                                       \
    template <Real T>                                 \
    COHORT_HOST_DEVICE T operator()(T g, T v) const { \
      __VA_ARGS__                                     \
    }                                                 \
  };

COHORT_BINARY(Add, typename, wrapping(a, b, [](auto x, auto y) { return x + y; }))
COHORT_BINARY(Sub, typename, wrapping(a, b, [](auto x, auto y) { return x - y; }))
COHORT_BINARY(Mul, typename, wrapping(a, b, [](auto x, auto y) { return x * y; }))

COHORT_UNARY(Copy, typename, x)
COHORT_UNARY(Neg, typename, Sub{}(T(-0.0), x))
COHORT_UNARY(Sign, typename, x > T(0) ? T(1) : (x < T(0) ? T(-1) : x))
COHORT_UNARY(Exp, Real, math::exp(x))
COHORT_UNARY(Expm1, Real, math::expm1(x))
COHORT_UNARY(Log, Real, math::log(x))
COHORT_UNARY(Log1p, Real, math::log1p(x))
COHORT_UNARY(Sqrt, Real, std::sqrt(x))
COHORT_UNARY(Rsqrt, Real, T(1) / std::sqrt(x))
COHORT_UNARY(Square, typename, Mul{}(x, x))
COHORT_UNARY(Reciprocal, Real, T(1) / x)
COHORT_UNARY(Tanh, Real, math::tanh(x))
COHORT_UNARY(Erf, Real, math::erf(x))
COHORT_UNARY(Sin, Real, std::sin(x))
COHORT_UNARY(Cos, Real, std::cos(x))
COHORT_UNARY(Sigmoid, Real, T(1) / (T(1) + math::exp(-x)))
COHORT_UNARY(Softplus, Real, (x > T(0) ? x : T(0)) + math::log1p(math::exp(x > T(0) ? -x : x)))
COHORT_UNARY(Relu, typename, x < T(0) ? T(0) : x)
COHORT_UNARY(Silu, Real, x* Sigmoid{}(x))
COHORT_UNARY(LogicalNot, typename, x == T(0) ? T(1) : T(0))
COHORT_UNARY(IsFinite, typename, x - x == T(0) ? T(1) : T(0))

struct Abs {
  template <typename T>
  COHORT_HOST_DEVICE T operator()(T x) const {
    if constexpr (Real<T>)
      return std::fabs(x);
    else
      return x < 0 ? Neg{}(x) : x;
  }
};

struct Floor {
  template <typename T>
  COHORT_HOST_DEVICE T operator()(T x) const {
    if constexpr (Real<T>)
      return std::floor(x);
    else
      return x;
  }
};

// To the nearest whole number, halves to the even one.
struct Round {
  template <typename T>
  COHORT_HOST_DEVICE T operator()(T x) const {
    if constexpr (Real<T>)
      return std::rint(x);
    else
      return x;
  }
};

// The normal distribution function.
COHORT_UNARY(NormalCdf, Real, T(0.5) + T(0.5) * math::erf(x * T(0.70710678118654752)))
COHORT_UNARY(Gelu, Real, x* NormalCdf{}(x))

// 0.5 (1 + tanh(u)) = sigmoid(2u), which stays accurate where it is small: 2u = sqrt(8/pi) (x +
// 0.044715 x^3).
COHORT_UNARY(TanhCdf, Real, Sigmoid{}(T(1.5957691216057308) * x * (T(1) + T(0.044715) * x * x)))
COHORT_UNARY(GeluTanh, Real, x* TanhCdf{}(x))

// Integer division truncates; by zero it gives 0, and the lowest value over -1 wraps to itself.
struct Div {
  template <typename T>
  COHORT_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (Real<T>)
      return a / b;
    else
      return b == 0 ? 0 : (std::is_signed_v<T> && b == T(-1) ? Neg{}(a) : a / b);
  }
};
COHORT_BINARY(Pow, Real, std::pow(a, b))

// What division leaves where the quotient is rounded down, which has the divisor's sign. Of
// integers by zero it is 0.
struct Mod {
  template <typename T>
  COHORT_HOST_DEVICE T operator()(T a, T b) const {
    T rest;  // of the sign of a
    if constexpr (Real<T>)
      rest = std::fmod(a, b);
    else
      rest = b == 0 || b == T(-1) ? 0 : a % b;
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
  }
};
COHORT_BINARY(Maximum, typename, (a > b) | (a != a) ? a : b)
COHORT_BINARY(Minimum, typename, (a < b) | (a != a) ? a : b)
COHORT_BINARY(Equal, typename, a == b ? T(1) : T(0))
COHORT_BINARY(NotEqual, typename, a != b ? T(1) : T(0))
COHORT_BINARY(Less, typename, a < b ? T(1) : T(0))
COHORT_BINARY(LessEqual, typename, a <= b ? T(1) : T(0))
COHORT_BINARY(Greater, typename, a > b ? T(1) : T(0))
COHORT_BINARY(GreaterEqual, typename, a >= b ? T(1) : T(0))
COHORT_BINARY(LogicalAnd, typename, (a != T(0)) & (b != T(0)) ? T(1) : T(0))
COHORT_BINARY(LogicalOr, typename, (a != T(0)) | (b != T(0)) ? T(1) : T(0))

COHORT_GRADIENT(ReluGrad, return v > T(0) ? g : T(0);)
COHORT_GRADIENT(TanhGrad, return g * (T(1) - v * v);)
COHORT_GRADIENT(SigmoidGrad, return g * v * (T(1) - v);)
COHORT_GRADIENT(GeluGrad, const T density = T(0.39894228040143268) * math::exp(T(-0.5) * v * v);
                return g * (NormalCdf{}(v) + v * density);)
COHORT_GRADIENT(GeluTanhGrad, const T p = TanhCdf{}(v);
                const T slope = T(1.5957691216057308) * (T(1) + T(3 * 0.044715) * v * v);
                return g * p * (T(1) + v * (T(1) - p) * slope);)
COHORT_GRADIENT(SiluGrad, const T s = Sigmoid{}(v); return g * s * (T(1) + v * (T(1) - s));)

struct Select {
  template <typename T>
  COHORT_HOST_DEVICE T operator()(T condition, T a, T b) const {
    return condition != T(0) ? a : b;
  }
};

#undef COHORT_UNARY
#undef COHORT_BINARY
#undef COHORT_GRADIENT

}  // namespace cohort::functors
