#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// The gradient of some rows of a variable; of the others it is zero.
struct RowGradient {
  std::vector<int64_t> rows;
  Tensor values;  // [rows, ...]
};

// Whether each number is greater than the one before.
bool is_ascending(std::span<const int64_t> rows);

// The same with each row once, in ascending order: gradients of a row that comes more than once are
// added up, in the order in which they come, half types in float and rounded once.
RowGradient combine_rows(const RowGradient& gradient);
// The sum of several, of the same row shape and dtype; at least one.
RowGradient combine_rows(std::span<const RowGradient> gradients);

// target += addend, of numeric tensors of the same spec; half types are added in float.
void add_to(Tensor& target, const Tensor& addend);

}  // namespace cohort
