#pragma once

#include <algorithm>

#include "core/kernels/common/attention_sizes.h"

// What Attention and AttentionGrad share: tensors are [batch, positions, heads, size], and each
// head's matrix [positions, size] is worked on in blocks of queries and keys, whose scores fit into
// the cache.
namespace cohort {

inline constexpr int64_t kQueryBlock = 64, kKeyBlock = 128;

// The sizes, and where blocks are.
struct AttentionBlocks : AttentionSizes {
  using AttentionSizes::AttentionSizes;

  // Offset of a position of head `item` % heads in batch `item` / heads, of tensors with
  // `positions` positions.
  int64_t offset(int64_t item, int64_t positions, int64_t position) const {
    return ((item / heads * positions + position) * heads + item % heads) * size;
  }
  // How many of the keys [first_key, first_key + count) a query sees.
  int64_t visible_in_block(int64_t query, int64_t first_key, int64_t count) const {
    return std::clamp<int64_t>(visible_keys(query) - first_key, 0, count);
  }
};

// A matrix in memory, transposed or not.
template <typename T>
struct Operand {
  const T* data;
  int64_t stride;  // from one stored row to the next
  bool transposed = false;
};

// c = alpha * a b + (accumulate ? c : 0) for a of m x k and b of k x n, once transposed where
// marked. Runs on the calling thread alone within a parallel region.
void multiply(int64_t m, int64_t n, int64_t k, float alpha, Operand<float> a, Operand<float> b,
              bool accumulate, float* c, int64_t c_stride);
void multiply(int64_t m, int64_t n, int64_t k, double alpha, Operand<double> a, Operand<double> b,
              bool accumulate, double* c, int64_t c_stride);

}  // namespace cohort
