#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"

namespace cohort {

// Conversions between memory of any dtype and tiles of T = float, double or int64_t.
template <typename T>
struct TileConverter {
  // tile[i] = source[offset + i * stride] for i < n; stride is 0 or 1.
  void (*load)(const void* source, int64_t offset, int64_t stride, T* tile, int64_t n);
  // target[offset + i] = tile[i] for i < n, by the rules of convert().
  void (*store)(const T* tile, void* target, int64_t offset, int64_t n);
};

template <typename T>
TileConverter<T> tile_converter(DType dtype);

}  // namespace cohort
