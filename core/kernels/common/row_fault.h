#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace cohort {

// An index that names no row, where an op allows it.
inline constexpr int64_t kNoRow = -1;

// The error of index `index` at `position`, where 0 to rows - 1 are allowed, and kNoRow if that is
// the lowest.
inline Error index_error(std::string_view op, int64_t index, int64_t position, int64_t rows,
                         int64_t lowest) {
  return Error(Code::kOutOfRange, str(op, ": index ", index, " at position ", position,
                                      " is out of range (allowed: 0 to ", rows - 1,
                                      lowest == kNoRow ? ", and -1 for no row)" : ")"));
}

// The error of a label that is no class.
inline Error label_error(int64_t label, int64_t row, int64_t classes) {
  return Error(Code::kOutOfRange,
               str("label ", label, " of row ", row, " is not a class: there are ", classes));
}

}  // namespace cohort
