#include "core/kernels/cuda/launch_shape.h"

#include <algorithm>
#include <bit>

namespace cohort::cuda {
namespace {

// More than a card of 132 multiprocessors, with 8 blocks each, has under way; a loop in the kernel
// does the rest.
constexpr int64_t kMaxBlocks = 4096;
// Each thread of a team has this many elements of a row at least, where the row has them.
constexpr int64_t kElementsPerThread = 4;
// Of a block of teams of one warp.
constexpr int64_t kShortRowThreads = 256;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

unsigned blocks_for(int64_t wanted) {
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, kMaxBlocks));
}

}  // namespace

ElementLaunch element_launch(int64_t n) {
  return {blocks_for(divided_up(n, kElementThreads)), static_cast<unsigned>(kElementThreads)};
}

RowLaunch row_launch(int64_t rows, int64_t columns) {
  const auto wanted = static_cast<uint64_t>(divided_up(columns, kElementsPerThread));
  const auto team =
      std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(wanted)), kWarp, kMostRowThreads);
  const int64_t teams = team == kWarp ? kShortRowThreads / kWarp : 1;
  return {blocks_for(divided_up(rows, teams)), static_cast<unsigned>(team),
          static_cast<unsigned>(teams)};
}

}  // namespace cohort::cuda
