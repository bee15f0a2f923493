#pragma once

#include <cstdint>

#include "core/collective/reduce_op.h"

namespace cohort::hierarchical {

// What the ranks of a host have combined, and hosts combine on: of half types in float, so that the
// result is rounded once; of a mean the sum.
class PartialResult {
 public:
  // Of a reduction by so many ranks.
  PartialResult(ReduceOp op, DType dtype, int ranks) : op_(op), dtype_(dtype), ranks_(ranks) {}

  ReduceOp op() const { return op_ == ReduceOp::kMean ? ReduceOp::kSum : op_; }
  DType dtype() const { return is_half() ? DType::kFloat32 : dtype_; }
  int64_t bytes(int64_t count) const { return count * static_cast<int64_t>(dtype_size(dtype())); }

  // Whether partial results have another dtype than elements.
  bool is_half() const { return is_floating(dtype_) && dtype_size(dtype_) == 2; }

  // What elements of a half type are to begin with.
  void widen(const void* elements, char* partial, int64_t count) const;
  // The elements of the result; of others than half types in the same memory.
  void finish(const char* partial, char* elements, int64_t count) const;

 private:
  const ReduceOp op_;
  const DType dtype_;
  const int ranks_;
};

}  // namespace cohort::hierarchical
