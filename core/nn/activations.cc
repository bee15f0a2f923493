#include "core/nn/activations.h"

#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"

namespace cohort::nn {
namespace {

// alpha * (exp(x) - 1) below 0. The exponential sees no positive x, so that it cannot overflow into
// the gradient of the branch that is not taken.
Value exponential_linear(const Value& x, double alpha) {
  const Value zero = ops::constant(0, x.dtype());
  return ops::relu(x) + ops::expm1(ops::minimum(x, zero)) * alpha;
}

}  // namespace

Value linear(const Value& x) { return x; }
Value relu(const Value& x) { return ops::relu(x); }
// Where two branches meet, the gradient is that of the flat or lower one, as at 0 of relu.
Value relu6(const Value& x) { return ops::minimum(ops::constant(6, x.dtype()), ops::relu(x)); }
Value leaky_relu(const Value& x) {
  constexpr double kSlope = 0.2;
  return ops::maximum(x * kSlope, x);
}
Value elu(const Value& x) { return exponential_linear(x, 1); }
Value selu(const Value& x) {
  constexpr double kAlpha = 1.6732632423543772, kScale = 1.0507009873554805;
  return exponential_linear(x, kAlpha) * kScale;
}
Value gelu(const Value& x) { return ops::gelu(x); }
Value gelu_tanh(const Value& x) { return ops::gelu(x, true); }
Value silu(const Value& x) { return ops::silu(x); }
Value sigmoid(const Value& x) { return ops::sigmoid(x); }
Value tanh(const Value& x) { return ops::tanh(x); }
Value softplus(const Value& x) { return ops::softplus(x); }
Value softmax(const Value& x) { return ops::softmax(x); }
Value log_softmax(const Value& x) { return ops::log_softmax(x); }

}  // namespace cohort::nn
