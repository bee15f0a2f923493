#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/tensor/shape.h"

namespace cohort {

// Neighbouring axes of a shape, as one of this extent.
struct AxisGroup {
  int64_t extent;
  bool reduced;
};

// The axes of `shape`: those next to each other that are all among `axes`, or all not, together.
inline std::vector<AxisGroup> group_axes(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<AxisGroup> groups;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!groups.empty() && groups.back().reduced == reduced)
      groups.back().extent *= shape[i];
    else
      groups.push_back({shape[i], reduced});
  }
  return groups;
}

}  // namespace cohort
