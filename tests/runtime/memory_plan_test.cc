#include "core/runtime/memory_plan.h"

#include <random>

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(MemoryPlanTest, BlocksNeededAtOnceNeverOverlap) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<MemoryBlock> blocks(random() % 40);
    for (MemoryBlock& b : blocks) {
      b.bytes = random() % 1000;
      b.first = static_cast<int>(random() % 30);
      b.last = b.first + static_cast<int>(random() % 10);
    }
    const size_t total = place_blocks(blocks);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const MemoryBlock& a = blocks[i];
      EXPECT_LE(a.offset + a.bytes, total);
      EXPECT_EQ(a.offset % 64, 0u);
      for (size_t k = 0; k < i; ++k) {
        const MemoryBlock& b = blocks[k];
        const bool same_time = a.first <= b.last && b.first <= a.last;
        const bool same_place = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        EXPECT_FALSE(same_time && same_place) << "blocks " << i << " and " << k;
      }
    }
  }
}

TEST(MemoryPlanTest, BlocksOfDifferentTimesShareMemory) {
  std::vector<MemoryBlock> blocks = {{.bytes = 640, .first = 0, .last = 1},
                                     {.bytes = 640, .first = 2, .last = 3},
                                     {.bytes = 320, .first = 1, .last = 2}};
  EXPECT_EQ(place_blocks(blocks), 960u);
}

}  // namespace
}  // namespace cohort
