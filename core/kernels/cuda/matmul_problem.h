#pragma once

#include <cstdint>
#include <string>

#include "core/kernels/kernel.h"

namespace cohort::cuda {

// A product as libraries of column-major matrices take it. What lies row by row there is its
// transpose, so that y = a b is y' = b' a': the library's first matrix is b, its second a.
struct MatMulProblem {
  // A matrix as it lies in memory, column by column: `rows` neighbours, then the next column.
  struct Matrix {
    int64_t rows, columns;
    int64_t batch_stride;  // in elements; 0: one for all batches
    DType dtype;

    size_t offset(int64_t batch) const;  // in bytes
  };
  int64_t m, n, k;  // of the library's product [m, k] [k, n]
  int64_t batches;
  Matrix first, second, result;
  bool transpose_first, transpose_second;

  // Of MatMul, or of FusedMatMul, whose third input has one element for each row of the result.
  explicit MatMulProblem(const KernelSpec& spec);

  // What a call takes: its products are the blocks of a grid in z.
  static constexpr int64_t kMostBatches = 65'535;
  // How many calls do all, each `slice_batches` batches from `first_batch` on. The last may begin
  // within the one before, and does again what that has done.
  int64_t slices() const;
  int64_t slice_batches() const;  // REQUIRES: there are batches
  int64_t first_batch(int64_t slice) const;
};

// What the library adds and applies itself; the rest is an elementwise program behind it. That is
// ReLU too: the library's makes 0 of NaN.
struct MatMulEpilogue {
  bool bias = false, gelu = false;  // gelu: by tanh
  bool complete = true;             // nothing is left to do
};
// Of a fused product of `dtype`s as in the spec.
MatMulEpilogue choose_epilogue(const KernelSpec& spec);

}  // namespace cohort::cuda
