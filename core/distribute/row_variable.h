#pragma once

#include "core/tensor/tensor.h"

namespace cohort {

// Some rows of a variable.
struct VariableRows {
  Tensor numbers;  // int64 [n], ascending
  Tensor values;   // [n, ...]
};

// A variable that may be too large to be a tensor, because its rows are made on first use: it is
// saved and loaded as those rows that are in use.
class RowVariable {
 public:
  virtual ~RowVariable() = default;
  // False: it is a variable like others, and what follows is not for it.
  virtual bool has_rows_on_first_use() const = 0;
  // The rows in use.
  virtual VariableRows rows_in_use() const = 0;
  // Sets these rows, and all others to what they are before their first use. kOutOfRange.
  virtual void assign_rows(const VariableRows& rows) = 0;
};

}  // namespace cohort
