#pragma once

#include <vector>

#include "core/runtime/variable.h"

// The rules by which values that replicas give to a variable, or have in their copies of it, become
// one: variable.h states them. While a function is traced. For implementations of Variable.
namespace cohort {

// Rows of axis 0 and what is done to them.
struct RowUpdates {
  Value indices, updates;
};

// What every copy gets where each replica writes `value`.
Value aggregate(const Variable& variable, const Value& value);
RowUpdates aggregate(const Variable& variable, ScatterOp op, const RowUpdates& rows);

// The value outside replicas where the copies have these values.
Value merge_copies(const Variable& variable, const std::vector<Value>& copies);
// What each of `copies` copies gets of a value that is assigned outside replicas. What equal parts
// of a sum leave over, of integers or by rounding, goes to the first, so that merge_copies gives
// the same value.
std::vector<Value> split_over_copies(const Variable& variable, const Value& value, size_t copies);

// Whether all replicas together write a variable whose copies are `kept` so (kAuto, kOnWrite), and
// the copies are always equal; else each replica writes its own.
bool is_written_together(Synchronization kept);
// Whether the copies are different parts of a value: a sum or mean that is made when it is read.
bool is_made_on_read(const Variable& variable);
// kInvalidArgument where the variable has no value outside replicas.
void require_value(const Variable& variable);
// kInvalidArgument where code outside replicas cannot add to the value.
void require_addable(const Variable& variable);
// kInvalidArgument for a mean of integers.
void require_mean(const Variable& variable);

}  // namespace cohort
