#pragma once

#include <tuple>

#include "core/kernels/common/functors.h"
#include "core/tensor/elementwise_program.h"

namespace cohort::functors {

// Every operation, in the order of the enumeration.
using All =
    std::tuple<Copy, Neg, Abs, Sign, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Square, Reciprocal, Tanh,
               Erf, Sin, Cos, Floor, Round, Sigmoid, Softplus, Relu, Gelu, GeluTanh, Silu,
               LogicalNot, IsFinite, Add, Sub, Mul, Div, Pow, Mod, Maximum, Minimum, Equal,
               NotEqual, Less, LessEqual, Greater, GreaterEqual, LogicalAnd, LogicalOr, ReluGrad,
               TanhGrad, SigmoidGrad, GeluGrad, GeluTanhGrad, SiluGrad, Select>;
static_assert(std::tuple_size_v<All> == static_cast<size_t>(Scalar::kCount));

}  // namespace cohort::functors
