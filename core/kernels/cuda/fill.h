#pragma once

#include "core/kernels/cuda/launch.h"

namespace cohort::cuda {

// Makes `count` elements on the device equal to `value`.
template <typename T>
void fill(Stream& stream, T* target, int64_t count, T value) {
  for_each_element(stream, count, [=] COHORT_DEVICE(int64_t i) { target[i] = value; });
}

}  // namespace cohort::cuda
