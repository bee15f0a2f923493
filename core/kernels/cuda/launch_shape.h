#pragma once

#include <cstdint>

namespace cohort::cuda {

inline constexpr int kWarp = 32;
// Threads of a block, which kernels are compiled to have registers for.
inline constexpr int kElementThreads = 256, kMostRowThreads = 1024;

// How many blocks and threads do a loop; threads go on to the elements that are left.
struct ElementLaunch {
  unsigned blocks, threads;
};
// For n > 0 independent elements.
ElementLaunch element_launch(int64_t n);

// Teams of threads do one row each, then the next: a warp for a short row, a block for a long one.
struct RowLaunch {
  unsigned blocks, team_threads, teams_per_block;
};
// For rows > 0 of `columns` elements.
RowLaunch row_launch(int64_t rows, int64_t columns);

}  // namespace cohort::cuda
