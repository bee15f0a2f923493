#include <cmath>
#include <limits>

#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

COHORT_REGISTER_OP({.name = "Input",
                    .num_inputs = 0,
                    .attributes = {"dtype", "shape"},
                    .infer = [](const InferenceContext& c) -> Specs {
                      return {{c.attributes.get<DType>("dtype"), shape_attribute(c)}};
                    },
                    .gradient = no_gradient,
                    .stateful = true});

COHORT_REGISTER_OP({.name = "Constant",
                    .num_inputs = 0,
                    .attributes = {"value"},
                    .infer = [](const InferenceContext& c) -> Specs {
                      const auto& value = c.attributes.get<Tensor>("value");
                      if (!value.defined()) invalid("the tensor is empty");
                      return {value.spec()};
                    },
                    .gradient = no_gradient});

// Whether a C++ number is one of `dtype`: 0.5 is no integer, 300 no uint8. Beyond 2^53 a double is
// inexact.
bool is_number_of(double value, DType dtype) {
  bool fits = true;
  dispatch(AllTypes{}, dtype, "constant", [&]<typename T>() {
    using Limits = std::numeric_limits<T>;
    if constexpr (Limits::is_integer)
      fits = value == std::trunc(value) && std::abs(value) <= 0x1p53 &&
             value >= static_cast<double>(Limits::min()) &&
             value <= static_cast<double>(Limits::max());
  });
  return fits;
}

}  // namespace

Value constant(const Tensor& value) {
  return apply("Constant", {}, {{"value", value.defined() ? value.clone() : value}});
}

Value constant(double value, DType dtype) {
  if (!is_number_of(value, dtype))
    invalid(in_scope("constant"), ": the number ", value, " is not a value of ", dtype);
  return apply("Constant", {}, {{"value", Tensor::full(dtype, {}, value)}});
}

}  // namespace cohort::ops
