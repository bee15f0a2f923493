#include "core/base/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort {
namespace {

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string bar(int64_t step, int64_t steps) {
  constexpr int64_t kWidth = 30;
  if (step >= steps) return std::string(kWidth, '=');
  const auto filled = static_cast<int64_t>(static_cast<double>(step) / steps * kWidth);
  return std::string(filled, '=') + '>' + std::string(kWidth - filled - 1, '.');
}

std::string pace(double seconds_per_step) {
  if (seconds_per_step >= 1) return format("%.0fs/step", seconds_per_step);
  if (seconds_per_step >= 1e-3) return format("%.0fms/step", seconds_per_step * 1e3);
  return format("%.0fus/step", seconds_per_step * 1e6);
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds));
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lld:%02lld", whole / 60, whole % 60);
  return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_metric(double value) {
  const bool tiny = value != 0 && std::abs(value) < 1e-3;
  return format(tiny ? "%.4e" : "%.4f", value);
}

std::string progress_line(const Progress& progress) {
  const bool done = !progress.steps || progress.step >= *progress.steps;
  std::string line = progress.steps ? str(progress.step, "/", *progress.steps, " [",
                                          bar(progress.step, *progress.steps), "]")
                                    : str(progress.step, "/unknown");
  const double per_step =
      progress.seconds / static_cast<double>(std::max<int64_t>(1, progress.step));
  line += done ? str(" - ", format_duration(progress.seconds))
               : str(" - ETA: ", format_duration(per_step * (*progress.steps - progress.step)));
  line += " " + pace(per_step);
  if (progress.seconds > 0)
    line += format(" %.0f examples/s", progress.examples / progress.seconds);
  for (const auto& [name, value] : progress.values) {
    line += str(" - ", name, ": ", format_metric(value));
  }
  return line;
}

bool is_live_terminal(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace cohort
