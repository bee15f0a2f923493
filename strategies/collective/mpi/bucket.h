#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/call.h"
#include "strategies/collective/mpi/piece_pool.h"

namespace cohort::mpi {

// Elements [begin, begin + count).
struct Range {
  int64_t begin = 0, count = 0;
};

// The segments of a reduction as one vector.
class Bucket {
 public:
  Bucket(std::span<const Segment> segments, DType dtype);
  int64_t total() const { return total_; }
  DType dtype() const { return dtype_; }
  int64_t bytes(int64_t count) const { return count * width_; }

  // Copies sources of a range, or `memory` to its targets where there are any.
  void pack(Range range, char* memory) const;
  void unpack(Range range, const char* memory) const;
  // The sources of a range where they are, or else packed into `memory`.
  const void* view(Range range, char* memory) const;

 private:
  // Calls `part(segment, first element of it, count, elements of the range before)`.
  template <typename Part>
  void for_each(Range range, const Part& part) const;

  std::vector<Segment> segments_;
  std::vector<int64_t> begins_;  // of the segments, and the end
  DType dtype_;
  int64_t width_, total_ = 0;
};

}  // namespace cohort::mpi
