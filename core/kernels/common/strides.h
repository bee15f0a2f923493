#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor/shape.h"

namespace cohort {

// Row-major strides of a dense tensor, in elements.
std::vector<int64_t> dense_strides(const Shape& shape);

}  // namespace cohort
