#include "core/kernels/cuda/box_copy.h"

#include "core/kernels/cuda/launch.h"

namespace cohort::cuda {
namespace {

// One thread for each element, in the target's order where its last axis is contiguous: writes of a
// warp are then neighbours.
template <typename T>
void copy_elements(Stream& stream, const Box& box, const T* source, T* target) {
  for_each_element(stream, box.count(), [=] COHORT_DEVICE(int64_t i) {
    int64_t from = 0, to = 0;
    for (int axis = box.rank - 1; axis >= 0; --axis) {
      const int64_t position = i % box.extents[axis];
      i /= box.extents[axis];
      from += position * box.source[axis];
      to += position * box.target[axis];
    }
    target[to] = source[from];
  });
}

}  // namespace

Box::Box(const std::vector<int64_t>& all_extents, const std::vector<int64_t>& source_strides,
         const std::vector<int64_t>& target_strides) {
  for (size_t i = 0; i < all_extents.size(); ++i) {
    const int64_t extent = all_extents[i];
    if (extent == 1) continue;
    if (rank > 0 && source[rank - 1] == extent * source_strides[i] &&
        target[rank - 1] == extent * target_strides[i]) {
      extents[rank - 1] *= extent;
      source[rank - 1] = source_strides[i];
      target[rank - 1] = target_strides[i];
    } else {
      extents[rank] = extent;
      source[rank] = source_strides[i];
      target[rank++] = target_strides[i];
    }
  }
}

int64_t Box::count() const {
  int64_t n = 1;
  for (int axis = 0; axis < rank; ++axis) n *= extents[axis];
  return n;
}

void copy_box(Stream& stream, const Box& box, const void* source, void* target,
              size_t element_bytes) {
  if (box.is_contiguous())
    return stream.copy_within_device(source, target,
                                     static_cast<size_t>(box.count()) * element_bytes);
  switch (element_bytes) {
    case 1:
      return copy_elements(stream, box, static_cast<const uint8_t*>(source),
                           static_cast<uint8_t*>(target));
    case 2:
      return copy_elements(stream, box, static_cast<const uint16_t*>(source),
                           static_cast<uint16_t*>(target));
    case 4:
      return copy_elements(stream, box, static_cast<const uint32_t*>(source),
                           static_cast<uint32_t*>(target));
    default:
      return copy_elements(stream, box, static_cast<const uint64_t*>(source),
                           static_cast<uint64_t*>(target));
  }
}

}  // namespace cohort::cuda
