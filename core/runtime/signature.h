#pragma once

#include <span>

#include "core/runtime/replica_group.h"
#include "core/tensor/tensor.h"

namespace cohort {

// The dtypes and shapes of a function's inputs, of which it has a trace.
Signature signature_of(std::span<const Tensor> inputs);

}  // namespace cohort
