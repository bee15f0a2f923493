#pragma once

#include <cstdint>

#include "core/data/dataset.h"

namespace cohort::data {

// Digits that look handwritten, drawn rather than collected: for examples and tests that must not
// need a download. Each is a pen stroke whose points, slant, angle, size, place, thickness and
// contrast vary, on noisy paper. Element i is {image: float32[28,28,1] in [0, 1], label: int32[]}
// and depends only on the seed and i. kInvalidArgument when `count` is negative.
Dataset synthetic_digits(int64_t count, uint64_t seed = 1);

}  // namespace cohort::data
