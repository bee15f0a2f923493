#pragma once

#include "core/tensor/tensor.h"

namespace cohort::parameter_server {

// Whether none of a tensor's numbers is infinite or NaN; integers are neither.
bool is_finite(const Tensor& tensor);

}  // namespace cohort::parameter_server
