#pragma once

#include <map>
#include <span>
#include <vector>

#include "core/collective/call.h"

namespace cohort::collective {

// The calls by which tensors are combined with those of other ranks: one for each dtype, in an
// order that is the same on all ranks whose specs are. For no tensors it is one call, too, by which
// ranks that have some learn of it.
class AllReduceCalls {
 public:
  // Results have the specs of values, and may be these. Their memory, and this, stay until the
  // calls, or the waits for them, have returned.
  AllReduceCalls(std::span<const Tensor> values, std::span<Tensor> results, ReduceOp op);
  AllReduceCalls(const AllReduceCalls&) = delete;
  AllReduceCalls& operator=(const AllReduceCalls&) = delete;

  std::vector<AllReduceCall> calls() const;

 private:
  std::vector<TensorSpec> specs_;
  std::map<DType, std::vector<Segment>> segments_;
  ReduceOp op_;
};

}  // namespace cohort::collective
