#include "strategies/multi_worker/straggler_watch.h"

#include <algorithm>

namespace cohort {

std::optional<StragglerWatch::Straggler> StragglerWatch::add_step(
    std::span<const std::chrono::nanoseconds> times) {
  slow_steps_.resize(times.size());
  std::vector<std::chrono::nanoseconds> sorted(times.begin(), times.end());
  std::sort(sorted.begin(), sorted.end());
  const auto median = sorted[(sorted.size() - 1) / 2];  // of two, the faster one
  std::optional<Straggler> straggler;
  for (size_t r = 0; r < times.size(); ++r) {
    const bool slow = times[r] > kFactor * median && times[r] - median > kLeast;
    slow_steps_[r] = slow ? std::min(slow_steps_[r] + 1, kSteps + 1) : 0;
    if (slow_steps_[r] != kSteps) continue;
    if (straggler)
      --slow_steps_[r];  // its turn comes
    else
      straggler = Straggler{static_cast<int>(r), times[r], median};
  }
  return straggler;
}

}  // namespace cohort
