#include "core/graph/indices.h"

namespace cohort {

Value as_int64(const Value& indices) {
  if (indices.dtype() == DType::kInt64) return indices;
  return indices.graph().add("Cast", {indices}, {{"dtype", DType::kInt64}}).output();
}

Value with_sign(const Value& indices) {
  return indices.dtype() == DType::kUInt8 ? as_int64(indices) : indices;
}

}  // namespace cohort
