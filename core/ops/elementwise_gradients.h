#pragma once

#include "core/graph/op.h"
#include "core/tensor/elementwise_program.h"

namespace cohort::ops {

// The gradient of each elementwise op.
GradientFunction elementwise_gradient(Scalar op);

}  // namespace cohort::ops
