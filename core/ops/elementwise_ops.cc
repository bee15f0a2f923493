#include "core/ops/elementwise_gradients.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"
#include "core/tensor/elementwise_program.h"

namespace cohort {
namespace ops {
namespace {

enum class Domain { kAny, kNumber, kFloating, kBool };

// What the operands of an op may be; the others work on floating numbers only.
Domain domain(Scalar op) {
  switch (op) {
    case Scalar::kCopy:
    case Scalar::kEqual:
    case Scalar::kNotEqual:
    case Scalar::kSelect:
      return Domain::kAny;
    case Scalar::kNeg:
    case Scalar::kAbs:
    case Scalar::kSign:
    case Scalar::kSquare:
    case Scalar::kAdd:
    case Scalar::kSub:
    case Scalar::kMul:
    case Scalar::kDiv:
    case Scalar::kMod:
    case Scalar::kMaximum:
    case Scalar::kMinimum:
    case Scalar::kLess:
    case Scalar::kLessEqual:
    case Scalar::kGreater:
    case Scalar::kGreaterEqual:
      return Domain::kNumber;
    case Scalar::kLogicalNot:
    case Scalar::kLogicalAnd:
    case Scalar::kLogicalOr:
      return Domain::kBool;
    default:
      return Domain::kFloating;
  }
}

bool gives_bool(Scalar op) {
  return domain(op) == Domain::kBool || op == Scalar::kIsFinite ||
         (op >= Scalar::kEqual && op <= Scalar::kGreaterEqual);
}

void require_domain(const TensorSpec& spec, Domain domain) {
  if (domain == Domain::kNumber) require_number(spec, "operands");
  if (domain == Domain::kFloating) require_floating(spec, "operands");
  if (domain == Domain::kBool && spec.dtype != DType::kBool)
    invalid("operands must be bool, not ", spec.dtype);
}

Specs infer_elementwise(Scalar op, const InferenceContext& c) {
  const size_t first = op == Scalar::kSelect ? 1 : 0;  // the condition apart
  if (first == 1 && c.inputs[0].dtype != DType::kBool)
    invalid("the condition must be bool, not ", c.inputs[0].dtype);
  require_domain(c.inputs[first], domain(op));
  Shape shape;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (i > first) require_same_dtype(c.inputs[first], "the first", c.inputs[i], "the second");
    shape = broadcast_shapes(shape, c.inputs[i].shape);
  }
  if (op == Scalar::kCopy) return {{c.attributes.get<DType>("dtype"), shape}};
  return {{gives_bool(op) ? DType::kBool : c.inputs[first].dtype, shape}};
}

using Names = std::vector<std::string>;

const bool kRegistered = [] {
  for (int64_t i = 0; i < static_cast<int64_t>(Scalar::kCount); ++i) {
    const auto op = static_cast<Scalar>(i);
    OpRegistration({.name = std::string(scalar_name(op)),
                    .num_inputs = scalar_arity(op),
                    .attributes = op == Scalar::kCopy ? Names{"dtype"} : Names{},
                    .infer = [op](const InferenceContext& c) { return infer_elementwise(op, c); },
                    .gradient = elementwise_gradient(op)});
  }
  return true;
}();

}  // namespace

Value add(const Value& a, const Value& b) { return apply("Add", {a, b}); }
Value sub(const Value& a, const Value& b) { return apply("Sub", {a, b}); }
Value mul(const Value& a, const Value& b) { return apply("Mul", {a, b}); }
Value div(const Value& a, const Value& b) { return apply("Div", {a, b}); }
Value mod(const Value& a, const Value& b) { return apply("Mod", {a, b}); }
Value pow(const Value& a, const Value& b) { return apply("Pow", {a, b}); }
Value maximum(const Value& a, const Value& b) { return apply("Maximum", {a, b}); }
Value minimum(const Value& a, const Value& b) { return apply("Minimum", {a, b}); }

Value equal(const Value& a, const Value& b) { return apply("Equal", {a, b}); }
Value not_equal(const Value& a, const Value& b) { return apply("NotEqual", {a, b}); }
Value less(const Value& a, const Value& b) { return apply("Less", {a, b}); }
Value less_equal(const Value& a, const Value& b) { return apply("LessEqual", {a, b}); }
Value greater(const Value& a, const Value& b) { return apply("Greater", {a, b}); }
Value greater_equal(const Value& a, const Value& b) { return apply("GreaterEqual", {a, b}); }
Value logical_and(const Value& a, const Value& b) { return apply("LogicalAnd", {a, b}); }
Value logical_or(const Value& a, const Value& b) { return apply("LogicalOr", {a, b}); }
Value logical_not(const Value& x) { return apply("LogicalNot", {x}); }
Value is_finite(const Value& x) { return apply("IsFinite", {x}); }
Value is_nan(const Value& x) { return not_equal(x, x); }

Value where(const Value& condition, const Value& a, const Value& b) {
  return apply("Select", {condition, a, b});
}

Value clip(const Value& x, double low, double high) {
  if (!(low <= high))
    invalid(in_scope("clip"), ": the lower bound ", low, " is not below the upper bound ", high);
  return minimum(maximum(x, scalar_like(x, low)), scalar_like(x, high));
}

Value cast(const Value& x, DType dtype) {
  return x.dtype() == dtype ? x : apply("Cast", {x}, {{"dtype", dtype}});
}

Value neg(const Value& x) { return apply("Neg", {x}); }
Value abs(const Value& x) { return apply("Abs", {x}); }
Value sign(const Value& x) { return apply("Sign", {x}); }
Value floor(const Value& x) { return apply("Floor", {x}); }
Value ceil(const Value& x) { return neg(floor(neg(x))); }
Value round(const Value& x) { return apply("Round", {x}); }
Value exp(const Value& x) { return apply("Exp", {x}); }
Value expm1(const Value& x) { return apply("Expm1", {x}); }
Value log(const Value& x) { return apply("Log", {x}); }
Value log1p(const Value& x) { return apply("Log1p", {x}); }
Value sqrt(const Value& x) { return apply("Sqrt", {x}); }
Value rsqrt(const Value& x) { return apply("Rsqrt", {x}); }
Value square(const Value& x) { return apply("Square", {x}); }
Value reciprocal(const Value& x) { return apply("Reciprocal", {x}); }
Value sin(const Value& x) { return apply("Sin", {x}); }
Value cos(const Value& x) { return apply("Cos", {x}); }
Value tan(const Value& x) { return sin(x) / cos(x); }
Value erf(const Value& x) { return apply("Erf", {x}); }
Value tanh(const Value& x) { return apply("Tanh", {x}); }
Value sigmoid(const Value& x) { return apply("Sigmoid", {x}); }
Value softplus(const Value& x) { return apply("Softplus", {x}); }
Value relu(const Value& x) { return apply("Relu", {x}); }
Value gelu(const Value& x, bool approximate) {
  return apply(approximate ? "GeluTanh" : "Gelu", {x});
}
Value silu(const Value& x) { return apply("Silu", {x}); }

}  // namespace ops

Value operator+(const Value& a, const Value& b) { return ops::add(a, b); }
Value operator-(const Value& a, const Value& b) { return ops::sub(a, b); }
Value operator*(const Value& a, const Value& b) { return ops::mul(a, b); }
Value operator/(const Value& a, const Value& b) { return ops::div(a, b); }
Value operator-(const Value& x) { return ops::neg(x); }
Value operator+(const Value& a, double b) { return a + ops::scalar_like(a, b); }
Value operator-(const Value& a, double b) { return a - ops::scalar_like(a, b); }
Value operator*(const Value& a, double b) { return a * ops::scalar_like(a, b); }
Value operator/(const Value& a, double b) { return a / ops::scalar_like(a, b); }
Value operator+(double a, const Value& b) { return ops::scalar_like(b, a) + b; }
Value operator-(double a, const Value& b) { return ops::scalar_like(b, a) - b; }
Value operator*(double a, const Value& b) { return ops::scalar_like(b, a) * b; }
Value operator/(double a, const Value& b) { return ops::scalar_like(b, a) / b; }

}  // namespace cohort
