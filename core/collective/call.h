#pragma once

#include <optional>
#include <span>
#include <variant>

#include "core/collective/communicator.h"

namespace cohort {

// What one rank asks of its group, with the meanings of Communicator's parameters.
struct AllReduceCall {
  std::span<const Segment> segments;
  DType dtype;
  ReduceOp op;
};
struct AllGatherCall {
  const void* source;
  void* target;
  std::span<const int64_t> bytes;
};
struct BroadcastCall {
  const void* source;
  void* target;
  int64_t bytes;
  int root;
};
struct BarrierCall {};
using Call = std::variant<BarrierCall, AllReduceCall, AllGatherCall, BroadcastCall>;

// What is wrong with the calls that the ranks of a group made together, in rank order, or nothing.
std::optional<Error> find_mistake(std::span<const Call> calls);

}  // namespace cohort
