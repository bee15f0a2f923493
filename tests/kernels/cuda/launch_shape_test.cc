#include "core/kernels/cuda/launch_shape.h"

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

constexpr int64_t kSizes[] = {1,   2,   31,   32,   33,      255,
                              256, 257, 1000, 4096, 1 << 20, int64_t{1} << 40};

TEST(ElementLaunch, HasWholeWarpsAndNeverMoreBlocksThanElementsNeed) {
  for (const int64_t n : kSizes) {
    const ElementLaunch shape = element_launch(n);
    EXPECT_EQ(shape.threads % kWarp, 0u) << n;
    EXPECT_LE(shape.threads, static_cast<unsigned>(kElementThreads)) << n;
    EXPECT_GE(shape.blocks, 1u) << n;
    EXPECT_LT((int64_t{shape.blocks} - 1) * shape.threads, n);
  }
}

TEST(ElementLaunch, OfManyElementsLoopsInsteadOfGrowing) {
  EXPECT_EQ(element_launch(int64_t{1} << 40).blocks, element_launch(int64_t{1} << 50).blocks);
}

TEST(RowLaunch, TeamsAreWarpsOrBlocksOfAPowerOfTwo) {
  for (const int64_t rows : kSizes)
    for (const int64_t columns : kSizes) {
      const RowLaunch shape = row_launch(rows, columns);
      EXPECT_EQ(shape.team_threads & (shape.team_threads - 1), 0u);
      EXPECT_GE(shape.team_threads, static_cast<unsigned>(kWarp));
      EXPECT_LE(shape.team_threads * shape.teams_per_block, static_cast<unsigned>(kMostRowThreads));
      // Threads of several teams of more than a warp would wait for each other.
      EXPECT_TRUE(shape.teams_per_block == 1 || shape.team_threads == kWarp);
      EXPECT_GE(shape.blocks, 1u);
      EXPECT_LT((int64_t{shape.blocks} - 1) * shape.teams_per_block, rows);
    }
}

TEST(RowLaunch, EmptyRowsStillHaveATeam) { EXPECT_EQ(row_launch(5, 0).team_threads, 32u); }

TEST(RowLaunch, LongRowsHaveLargerTeams) {
  EXPECT_EQ(row_launch(1000, 10).team_threads, 32u);
  EXPECT_EQ(row_launch(1000, 1000).team_threads, 256u);
  EXPECT_EQ(row_launch(1000, 100'000).team_threads, 1024u);
}

}  // namespace
}  // namespace cohort::cuda
