#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/call.h"

namespace cohort {

// Elements [begin, begin + count).
struct ElementRange {
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
  void pack(ElementRange range, char* memory) const;
  void unpack(ElementRange range, const char* memory) const;
  // The sources of a range where they are, or else packed into `memory`.
  const void* view(ElementRange range, char* memory) const;
  // Where a range lies, and where its results go, if that is one place; null if it is none or
  // several.
  const void* source(ElementRange range) const;
  void* target(ElementRange range) const;

 private:
  // Calls `part(segment, first element of it, count, elements of the range before)`.
  template <typename Part>
  void for_each(ElementRange range, const Part& part) const;

  std::vector<Segment> segments_;
  std::vector<int64_t> begins_;  // of the segments, and the end
  DType dtype_;
  int64_t width_, total_ = 0;
};

}  // namespace cohort
