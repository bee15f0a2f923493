#pragma once

#include <cstdint>
#include <string_view>

#include "core/kernels/common/row_fault.h"

namespace cohort {

// kOutOfRange, naming the op and the place, unless all indices are in [lowest, rows).
template <typename Index>
void check_indices(std::string_view op, const Index* indices, int64_t count, int64_t rows,
                   int64_t lowest) {
  for (int64_t i = 0; i < count; ++i)
    if (const auto index = static_cast<int64_t>(indices[i]); index < lowest || index >= rows)
      throw index_error(op, index, i, rows, lowest);
}

}  // namespace cohort
