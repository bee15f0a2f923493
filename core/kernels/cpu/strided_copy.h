#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/common/strides.h"

namespace cohort {

// Copies a box of elements from one layout to another: the shared core of Transpose, Concat, Split,
// Slice and Pad. Runs on the calling thread's team; rows that are contiguous on both sides are
// copied as a whole, and where rows of one side are columns of the other small squares are
// transposed in registers and cache.
class StridedCopy {
 public:
  // `extents` and, for each axis, the strides of the source and of the target in elements of
  // `element_bytes` (1, 2, 4 or 8). Quick where the last axis of more than one element is
  // contiguous in the target.
  StridedCopy(const std::vector<int64_t>& extents, const std::vector<int64_t>& source_strides,
              const std::vector<int64_t>& target_strides, size_t element_bytes);

  // `source` and `target` are the addresses of the box's first element; they must not overlap.
  void run(const void* source, void* target) const;

 private:
  struct Axis {
    int64_t extent, source, target;  // strides in elements
  };
  struct Offsets {
    int64_t source, target;
  };
  Offsets offsets(int64_t outer_index) const;
  void copy_rows(const char* source, char* target) const;
  template <typename T>
  void copy_columns(const T* source, T* target) const;

  std::vector<Axis> outer_;  // outermost first
  Axis row_{1, 1, 1};        // contiguous in the target
  Axis column_{1, 1, 1};     // contiguous in the source; only used where row_ is not
  int64_t outer_count_ = 1;
  size_t element_bytes_;
};

// Copies `bytes` bytes on the calling thread's team; nothing happens when both addresses are the
// same.
void parallel_copy(const void* source, void* target, size_t bytes);

}  // namespace cohort
