#include "strategies/cluster/launcher/restart_pause.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr RestartPause::Duration kShortest = std::chrono::seconds(1);
constexpr RestartPause::Duration kLongest = std::chrono::seconds(30);

}  // namespace

RestartPause::Duration RestartPause::after(Duration lasted) {
  if (lasted >= kLongest) distance_ = {};
  const Duration distance =
      std::exchange(distance_, std::clamp(2 * distance_, kShortest, kLongest));
  return std::max(distance - lasted, Duration::zero());
}

std::string restarting(RestartPause::Duration pause, int restart, int allowed) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(pause).count();
  return str("restarting all tasks", seconds > 0 ? str(" in ", seconds, " s") : "", " (restart ",
             restart, " of ", allowed, ")");
}

}  // namespace cohort::launcher
