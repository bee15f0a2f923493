#include "core/ops/shape_checks.h"

#include <cmath>
#include <limits>

#include "core/tensor/elementwise_program.h"

namespace cohort::ops {

void require_number(const TensorSpec& spec, std::string_view what) {
  if (spec.dtype == DType::kBool) invalid(what, " must be numbers, not bool; cast it first");
}

void require_floating(const TensorSpec& spec, std::string_view what) {
  if (!is_floating(spec.dtype))
    invalid(what, " must be floating, not ", spec.dtype, "; cast it first");
}

void require_integer(const TensorSpec& spec, std::string_view what) {
  if (!is_integer(spec.dtype)) invalid(what, " must be integers, not ", spec.dtype);
}

void require_same_dtype(const TensorSpec& a, std::string_view what_a, const TensorSpec& b,
                        std::string_view what_b) {
  if (a.dtype != b.dtype)
    invalid("dtypes differ: ", what_a, " is ", a.dtype, ", ", what_b, " is ", b.dtype,
            "; cast one of them");
}

void require_rank(const TensorSpec& spec, int rank, std::string_view what) {
  if (spec.shape.rank() != rank)
    invalid(what, " must have ", rank, " axes, has shape ", spec.shape);
}

void require_min_rank(const TensorSpec& spec, int rank, std::string_view what) {
  if (spec.shape.rank() < rank)
    invalid(what, " must have at least ", rank, " axes, has shape ", spec.shape);
}

void require_spec(const TensorSpec& spec, const TensorSpec& expected, std::string_view what) {
  if (spec != expected) invalid(what, " must be ", expected, ", is ", spec);
}

void require_number_of(double value, DType dtype) {
  if (is_floating(dtype)) return;
  bool fits = value == std::trunc(value);
  dispatch(AllTypes{}, dtype, "a number", [&]<typename T>() {
    using Limits = std::numeric_limits<T>;
    fits = fits && value >= static_cast<double>(Limits::min()) &&
           value <= static_cast<double>(Limits::max());
  });
  if (!fits) invalid("the number ", value, " is not a value of ", dtype);
  if (std::abs(value) > 0x1p53)
    invalid("the number ", value, " is beyond 2^53, where a double may stand for another ", dtype,
            "; give it as a constant tensor");
}

int axis_attribute(const InferenceContext& c, const Shape& shape) {
  const int64_t axis = c.attributes.get<int64_t>("axis");
  if (axis < 0 || axis >= shape.rank()) invalid("axis ", axis, " is not an axis of ", shape);
  return static_cast<int>(axis);
}

std::span<const int64_t> list_attribute(const InferenceContext& c, std::string_view name, int size,
                                        int64_t low) {
  const auto& list = c.attributes.get<std::vector<int64_t>>(name);
  if (list.size() != static_cast<size_t>(size))
    invalid(name, " must have ", size, " numbers, has ", list.size());
  for (int64_t number : list)
    if (number < low) invalid(name, " must be at least ", low, ", got ", number);
  return list;
}

Shape shape_attribute(const InferenceContext& c) {
  return Shape(c.attributes.get<std::vector<int64_t>>("shape"));
}

double finite_attribute(const InferenceContext& c, std::string_view name) {
  const double value = c.attributes.get<double>(name);
  if (!std::isfinite(value)) invalid(name, " must be finite, is ", value);
  return value;
}

int64_t count_attribute(const InferenceContext& c, std::string_view name) {
  const int64_t value = c.attributes.get<int64_t>(name);
  if (value < 0) invalid(name, " must not be negative, is ", value);
  return value;
}

void require_activation(const InferenceContext& c) {
  const auto& name = c.attributes.get<std::string>("activation");
  Scalar op;
  const bool known = scalar_from_name(name, op) && scalar_arity(op) == 1 && op != Scalar::kCopy &&
                     op != Scalar::kLogicalNot && op != Scalar::kIsFinite;
  if (!name.empty() && !known) invalid("\"", name, "\" is not an activation");
}

DType product_dtype(const InferenceContext& c, DType operands) {
  const DType dtype = c.attributes.get_or("dtype", operands);
  const bool widens = dtype == DType::kFloat32 && dtype_size(operands) == 2;
  if (dtype != operands && !widens) invalid("a product of ", operands, " cannot be ", dtype);
  return dtype;
}

int64_t add_extents(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    invalid("extents ", a, " and ", b, " add up to more than 2^63");
  return sum;
}

DType statistics_dtype(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

}  // namespace cohort::ops
