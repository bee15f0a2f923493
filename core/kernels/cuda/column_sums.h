#pragma once

#include <algorithm>

#include "core/kernels/common/scratch.h"
#include "core/kernels/cuda/row_math.h"

namespace cohort::cuda {

// Sums over the rows of a matrix for each of its columns, in two launches: each thread adds up a
// chunk of rows of one column, neighbouring threads neighbouring columns; then a team for each
// column adds the chunks in float64: few columns have thousands. Chunks depend on the sizes only,
// hence so do the bits.
struct ColumnChunks {
  int64_t rows, columns, chunk_rows, chunks;

  explicit ColumnChunks(RowSizes sizes)
      : rows(sizes.rows),
        columns(sizes.columns),
        chunk_rows(std::max(kMinRows, rows * columns / kThreads)),
        chunks((rows + chunk_rows - 1) / chunk_rows) {}

  int64_t sums() const { return chunks * columns; }
  COHORT_DEVICE int64_t first_row(int64_t chunk) const {
    const int64_t row = chunk * chunk_rows;
    return row < rows ? row : rows;
  }

 private:
  static constexpr int64_t kThreads = 256 * 1024;  // enough to keep the memory of a card busy
  static constexpr int64_t kMinRows = 32;          // keeps the scratch much smaller than the matrix
};

// Two numbers that are added up together.
template <typename T>
struct Pair {
  T a = 0, b = 0;
};

// partial[chunk * columns + c] = the sum of terms(row, c, first row of the chunk), a Pair, over the
// chunk's rows.
template <typename T, typename F>
void sum_chunks(Stream& stream, const ColumnChunks& chunks, Pair<T>* partial, F terms) {
  for_each_element(stream, chunks.sums(), [=] COHORT_DEVICE(int64_t i) {
    const int64_t chunk = i / chunks.columns, c = i % chunks.columns;
    const int64_t begin = chunks.first_row(chunk), end = chunks.first_row(chunk + 1);
    Pair<T> sum;
    for (int64_t row = begin; row < end; ++row) {
      const Pair<T> term = terms(row, c, begin);
      sum.a += term.a;
      sum.b += term.b;
    }
    partial[i] = sum;
  });
}

// Calls f(team, c) on the device for each column c, with a team for its chunks.
template <typename F>
void for_each_column(Stream& stream, const ColumnChunks& chunks, F f) {
  for_each_row(stream, chunks.columns, chunks.chunks, f);
}

// The totals of column c, on every thread of its team.
template <typename T>
COHORT_DEVICE inline Pair<double> add_chunks(const Team& team, const ColumnChunks& chunks,
                                             const Pair<T>* partial, int64_t c) {
  Pair<double> total;
  for (int64_t chunk = team.rank(); chunk < chunks.chunks; chunk += team.size()) {
    total.a += partial[chunk * chunks.columns + c].a;
    total.b += partial[chunk * chunks.columns + c].b;
  }
  return {team.sum(total.a), team.sum(total.b)};
}

}  // namespace cohort::cuda
