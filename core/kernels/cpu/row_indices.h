#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace cohort {

// An index that names no row, where an op allows it.
inline constexpr int64_t kNoRow = -1;

// kOutOfRange, naming the op and the place, unless all indices are in [lowest, rows).
template <typename Index>
void check_indices(std::string_view op, const Index* indices, int64_t count, int64_t rows,
                   int64_t lowest) {
  for (int64_t i = 0; i < count; ++i)
    if (const auto index = static_cast<int64_t>(indices[i]); index < lowest || index >= rows)
      fail(Code::kOutOfRange, op, ": index ", index, " at position ", i,
           " is out of range (allowed: 0 to ", rows - 1, ")");
}

}  // namespace cohort
