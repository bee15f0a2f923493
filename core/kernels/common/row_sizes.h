#pragma once

#include "core/tensor/shape.h"

namespace cohort {

// A tensor as rows, which are its last axis.
struct RowSizes {
  int64_t rows, columns;

  explicit RowSizes(const Shape& x) : rows(x.count(0, x.rank() - 1)), columns(x.dim(-1)) {}
};

}  // namespace cohort
