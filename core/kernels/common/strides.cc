#include "core/kernels/common/strides.h"

namespace cohort {

std::vector<int64_t> dense_strides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i)
    strides[static_cast<size_t>(i)] = shape.count(i + 1, shape.rank());
  return strides;
}

}  // namespace cohort
