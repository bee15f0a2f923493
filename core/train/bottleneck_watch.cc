#include "core/train/bottleneck_watch.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace cohort {

std::optional<std::string> BottleneckWatch::add_epoch(int64_t epoch, const StepShares& shares) {
  const double communication = shares.communication.value_or(0);
  const double most = std::max(shares.input, communication);
  const double seconds = most * shares.seconds * static_cast<double>(shares.steps);
  if (has_said_ || most <= kShare || seconds < kSeconds) return std::nullopt;
  has_said_ = true;
  const bool is_input = shares.input == most;
  return str("warning: the steps of epoch ", epoch + 1, " have spent ", std::lround(100 * most),
             " % of their time waiting for ", is_input ? "input" : "communication", ": ",
             is_input
                 ? "make it ready faster, as by map(f, {.num_parallel = 4}), by cache(), or by "
                   "interleave() with a prefetch() inside"
                 : "larger batches, fewer replicas, or another "
                   "CommunicationOptions::bytes_per_pack may help",
             "; callbacks::StepReport tells more\n");
}

}  // namespace cohort
