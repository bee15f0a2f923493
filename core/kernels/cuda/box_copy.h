#pragma once

#include <cstdint>
#include <vector>

#include "core/device/device.h"
#include "core/tensor/shape.h"

namespace cohort::cuda {

// How a box of elements goes from one layout to another: the shared core of Transpose, Concat,
// Split, Slice and Pad.
struct Box {
  int rank = 0;
  // Outermost first; strides in elements. Axes that are one axis on both sides are merged.
  int64_t extents[Shape::kMaxRank], source[Shape::kMaxRank], target[Shape::kMaxRank];

  Box(const std::vector<int64_t>& extents, const std::vector<int64_t>& source_strides,
      const std::vector<int64_t>& target_strides);

  int64_t count() const;
  // The same elements in the same order without gaps on both sides.
  bool is_contiguous() const {
    return rank == 0 || (rank == 1 && source[0] == 1 && target[0] == 1);
  }
};

// Copies the box from the element at `source` to the element at `target`, whose elements have
// `element_bytes` (1, 2, 4 or 8); they must not overlap.
void copy_box(Stream& stream, const Box& box, const void* source, void* target,
              size_t element_bytes);

}  // namespace cohort::cuda
