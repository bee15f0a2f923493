#pragma once

#include <string>

#include "core/data/dataset.h"

namespace cohort::data {

// The CIFAR-10 images of a split under their original names in `dir`: data_batch_1.bin to
// data_batch_5.bin for "train", test_batch.bin for "test". A file is a row of 3073-byte records: a
// label from 0 to 9, then the red, green and blue planes of a 32 by 32 image.
// {"image": float32[32,32,3] from 0 to 1, "label": int32[]}. Held in memory as bytes.
// kInvalidArgument for another split; kNotFound when a file is missing; kDataLoss naming file and
// byte offset when one is empty, ends within a record or has a label above 9.
Dataset images_from_cifar10(const std::string& dir, const std::string& split);

}  // namespace cohort::data
