#include "strategies/cluster/launcher/restart_pause.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr RestartPause::Duration kShortest = std::chrono::seconds(1);
constexpr RestartPause::Duration kLongest = std::chrono::seconds(30);

// " in 2 s"; "" where that is now.
std::string in_seconds(RestartPause::Duration pause) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(pause).count();
  return seconds > 0 ? str(" in ", seconds, " s") : "";
}

}  // namespace

RestartPause::Duration RestartPause::after(Duration lasted) {
  if (lasted >= kLongAttempt) distance_ = {};
  const Duration distance =
      std::exchange(distance_, std::clamp(2 * distance_, kShortest, kLongest));
  return std::max(distance - lasted, Duration::zero());
}

std::string restarting(RestartPause::Duration pause, int restart, int allowed) {
  return str("restarting all tasks", in_seconds(pause), " (restart ", restart, " of ", allowed,
             ")");
}

std::string restarting_with_other_nodes(RestartPause::Duration pause) {
  return str("restarting all tasks", in_seconds(pause),
             "; nodes have come or gone, which --restarts does not count");
}

std::string started_again(RestartPause::Duration pause, int restart, int allowed) {
  return str("started again", in_seconds(pause), ", ", restart, " of ", allowed);
}

}  // namespace cohort::launcher
