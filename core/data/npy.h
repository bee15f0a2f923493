#pragma once

#include <string>

#include "core/data/dataset.h"
#include "core/tensor/tensor.h"

namespace cohort::data {

// NumPy's .npy files, versions 1 to 3: "\x93NUMPY", two version bytes, the header's length (uint16
// or, from version 2, uint32, little-endian), a Python dict with descr, fortran_order and shape,
// then the elements.

// Either byte order, row-major or column-major. float16/32/64, int32/64, uint8 and bool as they
// are, int8, int16 and uint16 as int32, uint32 as int64; kUnimplemented for other types. A
// truncated or corrupt file is kDataLoss naming file and byte offset.
Tensor read_npy(const std::string& path);

struct NpyOptions {
  std::string name = "features";  // of the one tensor in each element
};

// The rows of the array, read as read_npy() does and held in memory: {name: dtype[...]} without the
// first axis. Arrays that belong together are zipped:
//
//   auto train = data::zip(data::npy("x.npy"), data::npy("y.npy", {.name = "label"}));
//
// kInvalidArgument, naming the file, when it holds a scalar.
Dataset npy(const std::string& path, NpyOptions options = {});

// Replaces the file whole or not at all. kUnimplemented for bfloat16, which the format does not
// have; kInvalidArgument for a tensor that is not defined().
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace cohort::data
