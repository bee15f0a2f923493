#pragma once

#include "core/kernels/common/row_fault.h"
#include "core/kernels/cuda/launch.h"

namespace cohort::cuda {

inline constexpr int64_t kNone = -1;

// The updates of each row as a list, in their order. row[i] is the row of update i where no earlier
// one is of that row, and kNone otherwise and where it names none; next[i] is the next update of
// the same row, or kNone.
struct UpdateLists {
  int64_t *row, *next;

  UpdateLists(void* scratch, int64_t count)
      : row(static_cast<int64_t*>(scratch)), next(row + count) {}
  static size_t bytes(int64_t count) { return 2 * static_cast<size_t>(count) * sizeof(int64_t); }
};

// Links `count` updates by the rows that input 0 names, where kNoRow is none. Others than `lowest`
// to `rows` - 1 are reported. As many comparisons as pairs of updates: quick for the thousands of a
// step.
template <typename Index>
void link_updates(const KernelContext& context, int64_t count, int64_t lowest, int64_t rows,
                  const UpdateLists lists) {
  const Index* indices = context.input<Index>(0);
  KernelFault* fault = context.fault;
  const int32_t number = context.number;
  for_each_row(*context.stream, count, count, [=] COHORT_DEVICE(const Team& team, int64_t i) {
    const auto row = static_cast<int64_t>(indices[i]);
    int64_t after = count, before = 0;
    for (int64_t j = team.rank(); j < count; j += team.size()) {
      if (static_cast<int64_t>(indices[j]) != row) continue;
      if (j < i) before = 1;
      if (j > i && j < after) after = j;
    }
    after = team.reduce(after, count, [](int64_t a, int64_t b) { return a < b ? a : b; });
    before = team.sum(before);
    if (team.rank() != 0) return;
    const bool is_allowed = row >= lowest && row < rows;
    if (!is_allowed) report(fault, number, row, i);
    lists.next[i] = after < count ? after : kNone;
    lists.row[i] = is_allowed && row != kNoRow && before == 0 ? row : kNone;
  });
}

}  // namespace cohort::cuda
