#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor/dtype.h"

namespace cohort {

// How elements of different ranks combine. The numbers are part of the serialised graph format.
enum class ReduceOp : int64_t {
  kSum = 0,
  kMean = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
  kBitAnd = 5,
  kBitOr = 6,
  kBitXor = 7
};

// "sum", "MEAN", "bit_and", ...: in any case. kInvalidArgument lists the allowed names.
ReduceOp reduce_op_from_name(std::string_view name);
// Whether it is one of those, which a number may not be.
bool is_reduce_op(ReduceOp op);
std::string_view reduce_op_name(ReduceOp op);
bool is_bitwise(ReduceOp op);

}  // namespace cohort
