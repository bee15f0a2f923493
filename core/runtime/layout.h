#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "core/graph/graph_function.h"
#include "core/graph/value_map.h"
#include "core/kernels/kernel.h"

namespace cohort {

// Where a value lies while a plan runs.
struct Location {
  enum class Kind { kArena, kBuckets, kVariable, kFeed, kConstant };
  Kind kind = Kind::kArena;
  size_t index = 0;   // of the feed
  size_t offset = 0;  // in the arena, or the memory of the buckets
  Resource* variable = nullptr;
  const Tensor* constant = nullptr;  // owned by the graph
};

// A node that runs a kernel, at its place in the schedule.
struct ScheduledKernel {
  const Node* node;
  std::unique_ptr<Kernel> kernel;
};

// The places of all values of a scheduled function, such that nothing is overwritten while it is
// needed. Reads give the variable's own memory; results are written straight into a variable where
// nobody still needs its old value and nothing in between may fail, and over a dead input where the
// kernel allows it. The results of an AllReduceStart lie side by side in their order, each at a
// multiple of kBufferAlignment: a bucket, into which the kernels before it write the values to be
// reduced, unless those are needed unreduced later on.
struct Layout {
  ValueMap<Location> locations;
  std::vector<const Node*>
      elided;  // assignments that need no copy, because their value is in place already
  size_t arena_bytes = 0;
  size_t bucket_bytes = 0;  // where buckets have memory of their own
  size_t unshared_bytes = 0;
};

// Buckets lie in the arena, or in memory of their own.
enum class BucketMemory { kArena, kOwn };
Layout make_layout(const GraphFunction& function, const std::vector<ScheduledKernel>& schedule,
                   BucketMemory bucket_memory = BucketMemory::kArena);

}  // namespace cohort
