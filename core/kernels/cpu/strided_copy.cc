#include "core/kernels/cpu/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "core/base/threads.h"

namespace cohort {
namespace {

constexpr int64_t kMinBytesPerThread = 65536;
constexpr int64_t kSquare = 16;          // a cache line of 4-byte elements
constexpr int64_t kStrip = 4 * kSquare;  // columns at a time: several lines of every page touched

// target[j * target_stride + i] = source[i * source_stride + j] for i < rows, j < columns.
template <typename T>
void transpose_square(const T* source, int64_t source_stride, T* target, int64_t target_stride,
                      int64_t rows, int64_t columns) {
  if (rows == kSquare && columns == kSquare) {
    T square[kSquare][kSquare];
    for (int64_t i = 0; i < kSquare; ++i)
      for (int64_t j = 0; j < kSquare; ++j) square[j][i] = source[i * source_stride + j];
    for (int64_t j = 0; j < kSquare; ++j)
      std::memcpy(target + j * target_stride, square[j], sizeof(square[j]));
    return;
  }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i)
      target[j * target_stride + i] = source[i * source_stride + j];
}

}  // namespace

StridedCopy::StridedCopy(const std::vector<int64_t>& extents,
                         const std::vector<int64_t>& source_strides,
                         const std::vector<int64_t>& target_strides, size_t element_bytes)
    : element_bytes_(element_bytes) {
  // Drops axes of one element and merges those that are one axis on both sides.
  for (size_t i = 0; i < extents.size(); ++i) {
    const Axis axis{extents[i], source_strides[i], target_strides[i]};
    if (axis.extent == 1) continue;
    if (!outer_.empty() && outer_.back().source == axis.extent * axis.source &&
        outer_.back().target == axis.extent * axis.target)
      outer_.back() = {outer_.back().extent * axis.extent, axis.source, axis.target};
    else
      outer_.push_back(axis);
  }
  if (!outer_.empty() && outer_.back().target == 1) {
    row_ = outer_.back();
    outer_.pop_back();
  }
  if (row_.source != 1) {
    const auto column =
        std::find_if(outer_.begin(), outer_.end(), [](const Axis& a) { return a.source == 1; });
    if (column != outer_.end()) {
      column_ = *column;
      outer_.erase(column);
    }
  }
  for (const Axis& axis : outer_) outer_count_ *= axis.extent;
}

StridedCopy::Offsets StridedCopy::offsets(int64_t outer_index) const {
  Offsets sum{0, 0};
  for (size_t i = outer_.size(); i-- > 0;) {
    const int64_t position = outer_index % outer_[i].extent;
    outer_index /= outer_[i].extent;
    sum.source += position * outer_[i].source;
    sum.target += position * outer_[i].target;
  }
  return sum;
}

void StridedCopy::run(const void* source, void* target) const {
  if (row_.source == 1)
    return copy_rows(static_cast<const char*>(source), static_cast<char*>(target));
  const auto columns_of = [&]<typename T>(T) {
    copy_columns(static_cast<const T*>(source), static_cast<T*>(target));
  };
  switch (element_bytes_) {
    case 1:
      return columns_of(uint8_t{});
    case 2:
      return columns_of(uint16_t{});
    case 4:
      return columns_of(uint32_t{});
    default:
      return columns_of(uint64_t{});
  }
}

// Every row is cut into chunks, so that few long rows keep all threads busy as well.
void StridedCopy::copy_rows(const char* source, char* target) const {
  const int64_t size = static_cast<int64_t>(element_bytes_), row_bytes = row_.extent * size;
  const int64_t chunks = (row_bytes + kMinBytesPerThread - 1) / kMinBytesPerThread;
  const int64_t chunk_bytes = std::min(row_bytes, kMinBytesPerThread);
  parallel_for(outer_count_ * chunks, kMinBytesPerThread / (chunk_bytes + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   const Offsets at = offsets(item / chunks);
                   const int64_t first = item % chunks * kMinBytesPerThread;
                   std::memcpy(target + at.target * size + first, source + at.source * size + first,
                               std::min(kMinBytesPerThread, row_bytes - first));
                 }
               });
}

template <typename T>
void StridedCopy::copy_columns(const T* source, T* target) const {
  const int64_t strips = (column_.extent + kStrip - 1) / kStrip;  // of kStrip columns and all rows
  const int64_t strip_bytes = kStrip * row_.extent * sizeof(T);
  parallel_for(outer_count_ * strips, kMinBytesPerThread / (strip_bytes + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   const Offsets at = offsets(item / strips);
                   const int64_t first = item % strips * kStrip,
                                 last = std::min(first + kStrip, column_.extent);
                   for (int64_t row = 0; row < row_.extent; row += kSquare)
                     for (int64_t column = first; column < last; column += kSquare)
                       transpose_square(
                           source + at.source + row * row_.source + column, row_.source,
                           target + at.target + column * column_.target + row, column_.target,
                           std::min(kSquare, row_.extent - row), std::min(kSquare, last - column));
                 }
               });
}

void parallel_copy(const void* source, void* target, size_t bytes) {
  if (source == target) return;
  parallel_for(static_cast<int64_t>(bytes), kMinBytesPerThread, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                end - begin);
  });
}

}  // namespace cohort
