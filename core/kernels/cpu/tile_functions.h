#pragma once

#include <cstdint>

#include "core/tensor/elementwise_program.h"

namespace cohort {

// out[i] = op(a[i], b[i], c[i]) for i < n; operands that the op does not have are ignored. `out`
// may be the memory of any operand, but must not overlap one in another way.
template <typename T>
using TileFunction = void (*)(const T* a, const T* b, const T* c, T* out, int64_t n);

// The vectorised loop of an op for T = float, double or int64_t; null when the op needs real
// numbers and T is an integer.
template <typename T>
TileFunction<T> tile_function(Scalar op);

}  // namespace cohort
