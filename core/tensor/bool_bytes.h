#pragma once

#include "core/tensor/tensor.h"

namespace cohort {

// For a tensor whose bytes come from a file or a peer: where its dtype is bool, makes every byte
// that is not 0 a 1, as a bool in memory must be. Other dtypes may hold any bytes.
void normalize_bools(Tensor& tensor);

}  // namespace cohort
