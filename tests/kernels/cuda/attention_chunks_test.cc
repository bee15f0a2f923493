#include "core/kernels/cuda/attention_chunks.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

// [batch, 10 queries, heads, 4] with 20 keys: 800 bytes of float32 scores a head.
AttentionChunks chunks(int64_t batch, int64_t heads, size_t limit) {
  const Attributes attributes = {{"causal", false}, {"scale", 1.0}};
  return AttentionChunks({{batch, 10, heads, 4}, {batch, 20, heads, 4}, attributes}, 4, limit);
}

TEST(AttentionChunks, AreAllAtOnceWhereThatFits) {
  const AttentionChunks c = chunks(3, 4, 3 * 4 * 800);
  EXPECT_EQ(c.batches, 3);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.count, 1);
}

TEST(AttentionChunks, AreWholeBatchesOrHeadsOfOne) {
  for (size_t limit = 0; limit < 30000; limit += 200)
    for (const int64_t batch : {1, 3, 4, 7})
      for (const int64_t heads : {1, 2, 6, 7}) {
        const AttentionChunks c = chunks(batch, heads, limit);
        EXPECT_EQ(c.count * c.items(), batch * heads);
        EXPECT_EQ(batch % c.batches, 0);
        EXPECT_EQ(heads % c.heads, 0);
        EXPECT_TRUE(c.batches == 1 || c.heads == heads);
        EXPECT_TRUE(c.items() == 1 || static_cast<size_t>(c.items()) * 800 <= limit);
      }
}

TEST(AttentionChunks, OfNothingAreNone) {
  EXPECT_EQ(chunks(0, 4, 1000).count, 0);
  EXPECT_EQ(chunks(4, 0, 1000).count, 0);
}

}  // namespace
}  // namespace cohort::cuda
