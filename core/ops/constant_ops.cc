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

}  // namespace

Value constant(const Tensor& value) {
  return apply("Constant", {}, {{"value", value.defined() ? value.clone() : value}});
}

Value constant(double value, DType dtype) {
  prepare("constant", [&] { require_number_of(value, dtype); });
  return apply("Constant", {}, {{"value", Tensor::full(dtype, {}, value)}});
}

}  // namespace cohort::ops
