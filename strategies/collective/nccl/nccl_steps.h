#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/collective/call.h"

namespace cohort {

// One call of NCCL. Counts are elements; NCCL's own copies count bytes as kUInt8.
struct NcclStep {
  enum class Kind { kAllReduce, kReduce, kReduceScatter, kBroadcast, kAllGather };
  Kind kind;
  const void* source;
  void* target;
  int64_t count;  // of each rank's part, where there are parts
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool operator==(const NcclStep&) const = default;
};

// The calls of NCCL that together, as one group, do what a rank asks for; none where there is
// nothing to move. No value where NCCL cannot: bitwise ops, bools, and calls that are not among
// kAllReduce .. kAllGather. Every target is written: null ones are not allowed.
std::optional<std::vector<NcclStep>> nccl_steps(const Call& call, int rank);

}  // namespace cohort
