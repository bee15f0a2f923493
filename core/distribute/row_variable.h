#pragma once

#include "core/runtime/variable.h"

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

// The variable as one whose rows are made on first use; null where it is like others.
inline RowVariable* as_row_variable(Variable& variable) {
  auto* const rows = dynamic_cast<RowVariable*>(&variable);
  return rows != nullptr && rows->has_rows_on_first_use() ? rows : nullptr;
}

}  // namespace cohort
