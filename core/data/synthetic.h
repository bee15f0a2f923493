#pragma once

#include <cstdint>
#include <string>

#include "core/data/dataset.h"

namespace cohort::data {

// Digits that look handwritten, drawn rather than collected: for examples and tests that must not
// need a download. Each is a pen stroke whose points, slant, angle, size, place, thickness and
// contrast vary, on noisy paper. Element i is {image: float32[28,28,1] in [0, 1], label: int32[]}
// and depends only on the seed and i. kInvalidArgument when `count` is negative.
Dataset synthetic_digits(int64_t count, uint64_t seed = 1);

// Images of each kind; `train` is at least 5, one for each file.
struct SyntheticCifar10Options {
  int64_t train = 10'000, test = 2'000;
  uint64_t seed = 1;
};

// Writes the files that images_from_cifar10() reads into `dir`, which is made where it is missing:
// drawn shapes and textures (disc, ring, square, triangle, cross, star, crescent, stripes, checks,
// two discs), one a class, that say nothing of themselves by place, size, angle or colour, partly
// hidden by a bar, on noisy ground. The same bytes for the same options. kInvalidArgument when
// there are too few images, kAlreadyExists when one of the files exists: none is replaced.
void write_synthetic_cifar10(const std::string& dir, SyntheticCifar10Options options = {});

}  // namespace cohort::data
