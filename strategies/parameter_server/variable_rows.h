#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/runtime/variable.h"
#include "core/tensor/tensor.h"
#include "strategies/parameter_server/partitioner.h"

// Rows of variables that are cut into shards.
namespace cohort::parameter_server {

// Those of a range, in the memory of `whole`; of a scalar, itself.
Tensor rows_of(const Tensor& whole, const RowRange& range);

// The range of an ascending list that lies within a range of rows.
std::pair<size_t, size_t> within(const std::vector<int64_t>& rows, const RowRange& range);

// kOutOfRange, with what is allowed. `special`: what a number below 0 may be, besides.
[[noreturn]] void refuse_row(const Variable& variable, int64_t row, int64_t least,
                             const char* special = "");

}  // namespace cohort::parameter_server
