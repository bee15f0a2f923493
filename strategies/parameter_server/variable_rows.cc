#include "strategies/parameter_server/variable_rows.h"

#include <algorithm>

#include "core/base/error.h"

namespace cohort::parameter_server {

Tensor rows_of(const Tensor& whole, const RowRange& range) {
  return whole.shape().rank() == 0 ? whole : whole.slice_rows(range.begin, range.end);
}

std::pair<size_t, size_t> within(const std::vector<int64_t>& rows, const RowRange& range) {
  const auto at = [&](int64_t row) {
    return static_cast<size_t>(std::ranges::lower_bound(rows, row) - rows.begin());
  };
  return {at(range.begin), at(range.end)};
}

void refuse_row(const Variable& variable, int64_t row, int64_t least, const char* special) {
  fail(Code::kOutOfRange, "row ", row, " of variable \"", variable.name(), "\" ", variable.spec(),
       " (allowed: ", least, " to ", variable.spec().shape[0] - 1, special, ")");
}

}  // namespace cohort::parameter_server
