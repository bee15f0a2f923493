#pragma once

#include <cstddef>
#include <optional>

#include "core/tensor/tensor.h"

namespace cohort::data {

// How a data file stores the numbers of an array, in NumPy's terms.
struct StoredType {
  char kind = 'f';  // f(loat), i(nteger), u(nsigned), b(ool)
  size_t bytes = 4;
  bool big_endian = false;
};

// The dtype that numbers stored so are read as: the same one, or else the smallest that holds all
// values (int16 becomes int32). Nothing when there is none, as for 64-bit unsigned integers.
std::optional<DType> dtype_of_stored(const StoredType& type);

// The array whose bytes, a tensor nobody else uses, are stored so; `shape` has to fit them. Works
// in place where it can. Any bool but 0 is read as 1. REQUIRES: dtype_of_stored(type) is a dtype.
Tensor decode(Tensor bytes, const StoredType& type, const Shape& shape);

}  // namespace cohort::data
