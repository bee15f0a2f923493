#pragma once

#include <cstdint>

#include "core/distribute/strategy_report.h"

namespace cohort {

// What became of pushes.
struct PushCounts {
  Histogram staleness;  // of those that were applied, by shard
  int64_t lost = 0;     // with servers that have started again
  int64_t late = 0;     // for a synchronous update

  void add(const PushCounts& others);
  // "staleness" (the mean), "staleness_max" and the histogram "staleness" where any was applied,
  // and "lost_updates".
  StrategyReport report() const;
};

}  // namespace cohort
