#pragma once

#include <algorithm>

#include "core/kernels/common/scratch.h"
#include "core/kernels/cpu/row_math.h"

namespace cohort {

// Several sums over the rows of a matrix for each of its columns. Rows are summed in chunks that
// depend on the sizes only, and the chunks then in float64, so that the result is the same for any
// number of threads and stays accurate for any number of rows.
template <typename T>
class ColumnSums {
 public:
  ColumnSums(RowSizes sizes, int num_sums, ScratchLayout& layout)
      : sizes_(sizes),
        num_sums_(num_sums),
        chunk_rows_(std::max(kMinRows, kChunkElements / (sizes.columns + 1))),
        num_chunks_((sizes.rows + chunk_rows_ - 1) / chunk_rows_),
        offset_(layout.add(num_chunks_ * num_sums * sizes.columns * sizeof(T))) {}

  // Calls add(first row, last row + 1, sums) for each chunk in parallel, where sums[k * columns +
  // c] is to be increased by the chunk's part of sum k of column c.
  template <typename F>
  void run(const KernelContext& context, F add) const {
    parallel_for(num_chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        T* sums = chunk_sums(context, chunk);
        std::fill_n(sums, num_sums_ * sizes_.columns, T(0));
        add(first_row(chunk), first_row(chunk + 1), sums);
      }
    });
  }

  // After run(): the total of sum k of column c.
  double total(const KernelContext& context, int k, int64_t c) const {
    double total = 0;
    for (int64_t chunk = 0; chunk < num_chunks_; ++chunk)
      total += chunk_sums(context, chunk)[k * sizes_.columns + c];
    return total;
  }

  // Calls finish(c) for every column in parallel; it may ask for totals.
  template <typename F>
  void for_each_column(F finish) const {
    constexpr int64_t kColumns = 64;  // a thread's least share
    parallel_for(sizes_.columns, kColumns, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) finish(c);
    });
  }

  int64_t num_chunks() const { return num_chunks_; }
  int64_t first_row(int64_t chunk) const { return std::min(chunk * chunk_rows_, sizes_.rows); }
  T* chunk_sums(const KernelContext& context, int64_t chunk) const {
    return scratch_at<T>(context, offset_) + chunk * num_sums_ * sizes_.columns;
  }

 private:
  static constexpr int64_t kChunkElements = 32 * 1024;  // to stay in the second-level cache
  static constexpr int64_t kMinRows = 64;  // keeps the scratch much smaller than the matrix

  RowSizes sizes_;
  int num_sums_;
  int64_t chunk_rows_, num_chunks_;
  size_t offset_;
};

// For each column c adds the sums over rows [begin, end) of the terms that `terms(r * columns + c,
// c, a, b)` adds to a and b.
template <typename T, typename F>
void add_two_sums(int64_t begin, int64_t end, int64_t columns, T* sums_a, T* sums_b, F terms) {
  constexpr int64_t kRows = 8;  // at a time, to load and store each sum only once for them
  for (; begin + kRows <= end; begin += kRows) {
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) {
      T a = 0, b = 0;
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) terms((begin + r) * columns + c, c, a, b);
      sums_a[c] += a;
      sums_b[c] += b;
    }
  }
  for (; begin < end; ++begin)
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) terms(begin * columns + c, c, sums_a[c], sums_b[c]);
}

}  // namespace cohort
