#pragma once

#include <cstdint>

#include "core/kernels/kernel.h"

namespace cohort {

// A shape around one axis: element i of line (o, j) is at (o * count + i) * inner + j.
struct Lines {
  int64_t outer, count, inner;

  Lines(const Shape& shape, int axis)
      : outer(shape.count(0, axis)),
        count(shape[axis]),
        inner(shape.count(axis + 1, shape.rank())) {}
  int64_t number() const { return outer * inner; }
  constexpr int64_t start(int64_t line) const {
    return line / inner * count * inner + line % inner;
  }
};

// Around the attribute "axis" of the first input.
inline Lines lines_along_axis(const KernelCall& call) {
  return Lines(call.input_specs[0].shape, static_cast<int>(call.attributes.get<int64_t>("axis")));
}

// NaN counts as larger than any number, as in NumPy and PyTorch.
template <typename T>
constexpr bool larger(T a, T b) {
  return a > b || (a != a && b == b);
}

}  // namespace cohort
