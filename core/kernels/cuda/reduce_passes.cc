#include "core/kernels/cuda/reduce_passes.h"

#include <algorithm>

#include "core/kernels/common/axis_groups.h"

namespace cohort::cuda {
namespace {

// A team reduces so many neighbours at most, where there are too few rows to keep a card busy.
constexpr int64_t kRowBlock = 16 * 1024;
// Likewise of entries that a thread adds up alone.
constexpr int64_t kColumnBlock = 64;
// Independent results that keep a card busy: 132 multiprocessors of 2048 threads.
constexpr int64_t kEnoughTeams = 1024, kEnoughThreads = 256 * 1024;

int64_t choose_block(int64_t outer, int64_t count, int64_t inner) {
  const int64_t most = std::max<int64_t>(count, 1);
  if (inner == 1) return outer >= kEnoughTeams ? most : std::min(kRowBlock, most);
  return outer * inner >= kEnoughThreads ? most : std::min(kColumnBlock, most);
}

}  // namespace

std::vector<ReducePass> plan_reduce_passes(const Shape& shape, const std::vector<int64_t>& axes) {
  const std::vector<AxisGroup> groups = group_axes(shape, axes);
  std::vector<ReducePass> passes;
  int64_t inner = 1;
  for (size_t g = groups.size(); g-- > 0;) {
    int64_t count = groups[g].extent;
    if (!groups[g].reduced) {
      inner *= count;
      continue;
    }
    int64_t outer = 1;
    for (size_t i = 0; i < g; ++i) outer *= groups[i].extent;
    do {
      passes.push_back({outer, count, inner, choose_block(outer, count, inner)});
      count = passes.back().blocks();
    } while (count > 1);
  }
  if (passes.empty()) passes.push_back({1, 1, shape.num_elements(), 1});
  return passes;
}

}  // namespace cohort::cuda
