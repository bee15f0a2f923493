#include "strategies/parameter_server/push_counts.h"

#include <algorithm>

namespace cohort {

void PushCounts::add_applied(int64_t value, int64_t times) {
  staleness[std::clamp<int64_t>(value, 0, kMostStaleness)] += times;
}

void PushCounts::add(const PushCounts& others) {
  for (const auto& [value, times] : others.staleness) add_applied(value, times);
  lost += others.lost;
  late += others.late;
}

StrategyReport PushCounts::report() const {
  StrategyReport report;
  report.numbers["lost_updates"] = static_cast<double>(lost);
  if (staleness.empty()) return report;
  double sum = 0, pushes = 0;
  for (const auto& [value, times] : staleness) {
    sum += static_cast<double>(value * times);
    pushes += static_cast<double>(times);
  }
  report.numbers["staleness"] = sum / pushes;
  report.numbers["staleness_max"] = static_cast<double>(staleness.rbegin()->first);
  report.histograms["staleness"] = staleness;
  return report;
}

}  // namespace cohort
