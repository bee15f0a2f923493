#pragma once

#include "core/graph/graph.h"

// Values that name rows, which are integers of any dtype.
namespace cohort {

// The same numbers as int64, of which sets of rows from different places are joined.
Value as_int64(const Value& indices);

// The same numbers of a dtype with a sign, so that -1 can stand where none names a row.
Value with_sign(const Value& indices);

}  // namespace cohort
