#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kernels/common/attention_sizes.h"

namespace cohort::cuda {

// The heads whose scores are in memory at a time: whole batches, or some heads of one. All chunks
// are alike.
struct AttentionChunks {
  int64_t batches, heads;  // of a chunk; divide those there are
  int64_t count;           // of chunks

  // As many as have scores of `limit` bytes together, and one head at least.
  AttentionChunks(const AttentionSizes& sizes, size_t element_bytes, size_t limit);
  int64_t items() const { return batches * heads; }
};

}  // namespace cohort::cuda
