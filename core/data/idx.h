#pragma once

#include <string>

#include "core/data/dataset.h"

namespace cohort::data {

// IDX: the format of MNIST and its relatives. Two zero bytes, a type byte, the number of extents as
// a byte, the extents as big-endian uint32, then the elements, big-endian and row-major. Files may
// be gzipped. A truncated or corrupt file is kDataLoss naming file and byte offset; see DataFile.

// The whole array. Unsigned bytes are uint8, signed bytes and shorts int32, ints int32, floats and
// doubles float32 and float64.
Tensor read_idx(const std::string& path);

struct IdxOptions {
  int64_t num_classes = 10;  // labels have to be below this
};

// The images of a split, "train" or "test", under their original names in `dir`:
// train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., each plain or with .gz.
// {"image": float32[height,width,1] from 0 to 1, "label": int32[]}. Held in memory as bytes.
// kInvalidArgument for another split; kNotFound when a file is missing; kDataLoss when the files do
// not belong together or a label is too high.
Dataset images_from_idx(const std::string& dir, const std::string& split, IdxOptions options = {});

}  // namespace cohort::data
