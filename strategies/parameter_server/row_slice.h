#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace cohort {

// Rows of axis 0 as Python's [begin:end:step] names them: negative numbers count from the end, and
// what lies outside is left out.
struct RowSlice {
  std::optional<int64_t> begin = {}, end = {};
  int64_t step = 1;

  // The numbers of these rows among `size`, in order. kInvalidArgument for a step of 0,
  // kResourceExhausted for very many rows.
  std::vector<int64_t> rows(int64_t size) const;
};

}  // namespace cohort
