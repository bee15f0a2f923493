#include "core/collective/reduce_op.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr std::string_view kNames[] = {"sum",     "mean",    "min",    "max",
                                       "product", "bit_and", "bit_or", "bit_xor"};

}  // namespace

ReduceOp reduce_op_from_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto at = std::find(std::begin(kNames), std::end(kNames), lower);
  if (at == std::end(kNames))
    invalid("\"", name,
            "\" is not a reduce op; allowed are sum, mean, min, max, product, bit_and, ",
            "bit_or, bit_xor");
  return static_cast<ReduceOp>(at - std::begin(kNames));
}

bool is_reduce_op(ReduceOp op) { return op >= ReduceOp::kSum && op <= ReduceOp::kBitXor; }

std::string_view reduce_op_name(ReduceOp op) {
  return is_reduce_op(op) ? kNames[static_cast<size_t>(op)] : "unknown";
}

bool is_bitwise(ReduceOp op) { return op >= ReduceOp::kBitAnd; }

}  // namespace cohort
