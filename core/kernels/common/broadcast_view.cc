#include "core/kernels/common/broadcast_view.h"

#include "core/base/error.h"

namespace cohort {

BroadcastView::BroadcastView(const Shape& input, const Shape& output) {
  const int added = output.rank() - input.rank();
  COHORT_CHECK(added >= 0);
  // Outermost first; strides hold only whether the axis advances until the second loop.
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t extent = output[axis], own = axis < added ? 1 : input[axis - added];
    COHORT_CHECK(own == extent || own == 1);
    if (extent == 1) continue;
    const int64_t advances = own == extent;
    if (rank_ > 0 && strides_[rank_ - 1] == advances) {
      extents_[rank_ - 1] *= extent;
    } else {
      extents_[rank_] = extent;
      strides_[rank_++] = advances;
    }
  }
  if (rank_ == 0) extents_[0] = strides_[0] = rank_ = 1;
  int64_t stride = 1;
  for (int axis = rank_ - 1; axis >= 0; --axis) {
    if (axis > 0 || strides_[0] != 0) period_ *= extents_[axis];
    if (strides_[axis] == 0) continue;
    strides_[axis] = stride;
    stride *= extents_[axis];
  }
}

}  // namespace cohort
