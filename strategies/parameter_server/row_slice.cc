#include "strategies/parameter_server/row_slice.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr int64_t kMaxRows = 1 << 27;

}  // namespace

std::vector<int64_t> RowSlice::rows(int64_t size) const {
  if (step == 0) invalid("a slice has step 0");
  // Going down, "before the first row" is a place as well.
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> number, int64_t without) {
    if (!number) return without;
    return std::clamp(*number < 0 ? *number + size : *number, lowest, highest);
  };
  const int64_t first = place(begin, step > 0 ? lowest : highest),
                last = place(end, step > 0 ? highest : lowest);
  // Beyond the last row, all steps are alike.
  const int64_t by = std::clamp(step, -size - 1, size + 1);
  const int64_t length = std::max<int64_t>(by > 0 ? last - first : first - last, 0);
  if (length / std::abs(by) > kMaxRows)
    fail(Code::kResourceExhausted, "a slice of ", length / std::abs(by), " rows; the limit is ",
         kMaxRows);
  std::vector<int64_t> rows;
  for (int64_t row = first; by > 0 ? row < last : row > last; row += by) rows.push_back(row);
  return rows;
}

}  // namespace cohort
