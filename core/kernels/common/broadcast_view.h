#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/tensor/shape.h"

namespace cohort {

// How a dense tensor is read when it is broadcast to a larger shape: the axes of that shape with
// runs of repeated and of consecutive axes merged, so that the strides alternate between 0 and
// positive ones.
class BroadcastView {
 public:
  // `input` must broadcast to `output`.
  BroadcastView(const Shape& input, const Shape& output);

  // The input has the elements of the output, in its order.
  bool same_order() const { return rank_ == 1 && strides_[0] == 1; }
  // After how many elements of the output the input is read from its start again; the output's size
  // if never.
  int64_t period() const { return period_; }
  // The merged axes, outermost first, one at least; strides in elements of the input.
  int rank() const { return rank_; }
  int64_t extent(int axis) const { return extents_[axis]; }
  int64_t stride(int axis) const { return strides_[axis]; }

  // Calls run(offset, stride, length) for stretches that make up elements [begin, begin + count) of
  // the output: they are input elements offset, offset + stride, ..., where stride is 0 or 1.
  template <typename Run>
  void for_each_run(int64_t begin, int64_t count, const Run& run) const {
    std::array<int64_t, Shape::kMaxRank> index;
    for (int axis = rank_ - 1; axis >= 0; --axis, begin /= extents_[axis + 1])
      index[axis] = begin % extents_[axis];
    const int last = rank_ - 1;
    while (count > 0) {
      int64_t offset = 0;
      for (int axis = 0; axis < rank_; ++axis) offset += index[axis] * strides_[axis];
      const int64_t length = std::min(count, extents_[last] - index[last]);
      run(offset, strides_[last], length);
      count -= length;
      index[last] += length;
      for (int axis = last; axis > 0 && index[axis] == extents_[axis]; --axis)
        index[axis] = 0, ++index[axis - 1];
    }
  }

 private:
  int rank_ = 0;  // at least 1
  std::array<int64_t, Shape::kMaxRank> extents_{}, strides_{};
  int64_t period_ = 1;
};

}  // namespace cohort
