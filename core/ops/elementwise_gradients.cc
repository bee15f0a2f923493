#include "core/ops/elementwise_gradients.h"

#include <cmath>
#include <numbers>

#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"

namespace cohort::ops {
namespace {

struct Unary {
  Value dy, x, y;
};

struct Binary {
  Value dy, a, b, y;
};

template <typename F>
GradientFunction unary(F f) {
  return [f](const Node& node, const Values& dys) -> Values {
    return {f(Unary{dys[0], node.inputs()[0], output_of(node)})};
  };
}

// `f` returns the gradients before the broadcast of each operand is undone.
template <typename F>
GradientFunction binary(F f) {
  return [f](const Node& node, const Values& dys) -> Values {
    const auto& in = node.inputs();
    Values result = f(Binary{dys[0], in[0], in[1], output_of(node)});
    for (size_t i = 0; i < result.size(); ++i)
      if (result[i].defined()) result[i] = sum_to_shape(result[i], in[i].shape());
    return result;
  };
}

Values choose_gradient(const Value& condition, const Value& dy) {
  const Value zero = scalar_like(dy, 0);
  return {where(condition, dy, zero), where(condition, zero, dy)};
}

Values select_gradient(const Node& node, const Values& dys) {
  const auto& in = node.inputs();
  const Values result = choose_gradient(in[0], dys[0]);
  return {Value(), sum_to_shape(result[0], in[1].shape()), sum_to_shape(result[1], in[2].shape())};
}

// b a^(b-1) and a^b log(a), both 0 where their first factor is 0 and the second infinite; the
// latter as well where a is negative and has no logarithm, as TensorFlow has it.
Values pow_gradient(const Binary& n) {
  const Value zero = scalar_like(n.a, 0), one = scalar_like(n.a, 1);
  const Value exponent =
      where(logical_or(not_equal(n.b, zero), is_finite(reciprocal(n.a))), n.b - 1.0, one);
  const Value base = where(greater(n.a, zero), n.a, one);
  return {n.dy * n.b * pow(n.a, exponent), n.dy * n.y * log(base)};
}

// The derivatives of op Grad(dy, z) = dy * f(z), given f'(z): `op` is linear in dy.
template <typename F>
GradientFunction activation_grad(const char* op, F derivative) {
  return binary([op, derivative](const Binary& n) -> Values {
    return {apply(op, {n.dy, n.b}), n.dy * n.a * derivative(n.b)};
  });
}

Value gelu_second_derivative(const Value& x) {
  const double density = 1 / std::sqrt(2 * std::numbers::pi);
  return density * exp(-0.5 * square(x)) * (2.0 - square(x));
}

// Of x s(u(x)), s being the sigmoid.
Value gelu_tanh_second_derivative(const Value& x) {
  constexpr double kCubic = 0.044715;
  const double scale = std::sqrt(8 / std::numbers::pi);
  const Value x2 = square(x), s = sigmoid(scale * x * (1.0 + kCubic * x2)),
              slope = scale * (1.0 + 3 * kCubic * x2);  // of u
  return s * (1.0 - s) * (scale * (2.0 + 12 * kCubic * x2) + x * (1.0 - 2.0 * s) * square(slope));
}

Value silu_second_derivative(const Value& x) {
  const Value s = sigmoid(x);
  return s * (1.0 - s) * (2.0 + x * (1.0 - 2.0 * s));
}

GradientFunction unary_gradient(Scalar op) {
  switch (op) {
    case Scalar::kCopy:
      return unary([](const Unary& n) { return cast(n.dy, n.x.dtype()); });
    case Scalar::kNeg:
      return unary([](const Unary& n) { return -n.dy; });
    case Scalar::kAbs:
      return unary([](const Unary& n) { return n.dy * sign(n.x); });
    case Scalar::kExp:
      return unary([](const Unary& n) { return n.dy * n.y; });
    case Scalar::kExpm1:
      return unary([](const Unary& n) { return n.dy * (n.y + 1.0); });
    case Scalar::kLog:
      return unary([](const Unary& n) { return n.dy / n.x; });
    case Scalar::kLog1p:
      return unary([](const Unary& n) { return n.dy / (n.x + 1.0); });
    case Scalar::kSqrt:
      return unary([](const Unary& n) { return 0.5 * n.dy / n.y; });
    case Scalar::kRsqrt:
      return unary([](const Unary& n) { return -0.5 * n.dy * (n.y * square(n.y)); });
    case Scalar::kSquare:
      return unary([](const Unary& n) { return 2.0 * n.dy * n.x; });
    case Scalar::kReciprocal:
      return unary([](const Unary& n) { return -n.dy * square(n.y); });
    case Scalar::kErf:
      return unary(
          [](const Unary& n) { return 2 * std::numbers::inv_sqrtpi * n.dy * exp(-square(n.x)); });
    case Scalar::kSin:
      return unary([](const Unary& n) { return n.dy * cos(n.x); });
    case Scalar::kCos:
      return unary([](const Unary& n) { return -n.dy * sin(n.x); });
    case Scalar::kSoftplus:
      return unary([](const Unary& n) { return n.dy * sigmoid(n.x); });
    case Scalar::kTanh:
      return unary([](const Unary& n) { return apply("TanhGrad", {n.dy, n.y}); });
    case Scalar::kSigmoid:
      return unary([](const Unary& n) { return apply("SigmoidGrad", {n.dy, n.y}); });
    case Scalar::kRelu:
      return unary([](const Unary& n) { return apply("ReluGrad", {n.dy, n.y}); });
    case Scalar::kGelu:
      return unary([](const Unary& n) { return apply("GeluGrad", {n.dy, n.x}); });
    case Scalar::kGeluTanh:
      return unary([](const Unary& n) { return apply("GeluTanhGrad", {n.dy, n.x}); });
    case Scalar::kSilu:
      return unary([](const Unary& n) { return apply("SiluGrad", {n.dy, n.x}); });
    default:
      return no_gradient;
  }
}

GradientFunction binary_gradient(Scalar op) {
  switch (op) {
    case Scalar::kAdd:
      return binary([](const Binary& n) -> Values { return {n.dy, n.dy}; });
    case Scalar::kSub:
      return binary([](const Binary& n) -> Values { return {n.dy, -n.dy}; });
    case Scalar::kMul:
      return binary([](const Binary& n) -> Values { return {n.dy * n.b, n.dy * n.a}; });
    case Scalar::kDiv:
      return binary([](const Binary& n) -> Values { return {n.dy / n.b, -n.dy * n.y / n.b}; });
    case Scalar::kMod:  // a less b times the quotient, which is a whole number
      return binary([](const Binary& n) -> Values {
        return {n.dy, -n.dy * round((n.a - n.y) / n.b)};
      });
    case Scalar::kPow:
      return binary(pow_gradient);
    case Scalar::kMaximum:
      return binary([](const Binary& n) { return choose_gradient(greater_equal(n.a, n.b), n.dy); });
    case Scalar::kMinimum:
      return binary([](const Binary& n) { return choose_gradient(less_equal(n.a, n.b), n.dy); });
    case Scalar::kReluGrad:
      return binary([](const Binary& n) -> Values {
        return {apply("ReluGrad", {n.dy, n.b}), Value()};
      });
    case Scalar::kTanhGrad:
      return activation_grad("TanhGrad", [](const Value& y) { return -2.0 * y; });
    case Scalar::kSigmoidGrad:
      return activation_grad("SigmoidGrad", [](const Value& y) { return 1.0 - 2.0 * y; });
    case Scalar::kGeluGrad:
      return activation_grad("GeluGrad", gelu_second_derivative);
    case Scalar::kSiluGrad:
      return activation_grad("SiluGrad", silu_second_derivative);
    case Scalar::kGeluTanhGrad:
      return activation_grad("GeluTanhGrad", gelu_tanh_second_derivative);
    default:
      return no_gradient;
  }
}

}  // namespace

GradientFunction elementwise_gradient(Scalar op) {
  if (op == Scalar::kSelect) return select_gradient;
  return scalar_arity(op) == 1 ? unary_gradient(op) : binary_gradient(op);
}

}  // namespace cohort::ops
