#include "core/base/time_limits.h"

#include <algorithm>
#include <cmath>

namespace cohort {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kYear = std::chrono::hours(24 * 365);

}  // namespace

milliseconds clamped(milliseconds limit) { return std::clamp(limit, milliseconds(0), kYear); }

milliseconds clamped_seconds(double limit) {
  const double most = std::chrono::duration<double>(kYear).count();
  return milliseconds(std::llround(std::ceil(std::clamp(limit, 0.0, most) * 1000)));
}

}  // namespace cohort
