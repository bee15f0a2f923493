#pragma once

#include <cstdint>

#include "core/distribute/strategy_report.h"

namespace cohort {

// What became of pushes. Of the same size whatever others say of theirs.
struct PushCounts {
  static constexpr int64_t kMostStaleness = (1 << 16) - 1;  // stands for all beyond

  Histogram staleness;  // of those that were applied, by shard
  int64_t lost = 0;     // with servers that have started again, by shard
  int64_t late = 0;     // for a synchronous update

  // One was applied, or so many were, of this staleness.
  void add_applied(int64_t value, int64_t times = 1);
  void add(const PushCounts& others);
  // "staleness" (the mean), "staleness_max" and the histogram "staleness" where any was applied,
  // and "lost_updates".
  StrategyReport report() const;
};

}  // namespace cohort
