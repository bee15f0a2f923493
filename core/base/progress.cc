#include "core/base/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/format_number.h"

namespace cohort {
namespace {

// Of what no locale writes otherwise: whole numbers.
template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

constexpr int64_t kBarWidth = 30, kShortestBar = 8;

std::string bar(int64_t step, int64_t steps, int64_t width) {
  if (step >= steps) return std::string(width, '=');
  const auto filled = static_cast<int64_t>(static_cast<double>(step) / steps * width);
  return std::string(filled, '=') + '>' + std::string(width - filled - 1, '.');
}

// Of UTF-8, in which characters go on with bytes 10xxxxxx.
bool begins_character(char byte) { return (byte & 0xc0) != 0x80; }

int64_t columns(const std::string& line) { return std::ranges::count_if(line, begins_character); }

std::string first_columns(const std::string& line, int64_t width) {
  const auto is_beyond = [&](char byte) { return begins_character(byte) && width-- <= 0; };
  return {line.begin(), std::ranges::find_if(line, is_beyond)};
}

std::string pace(double seconds_per_step) {
  if (seconds_per_step >= 1) return format("%.0fs/step", seconds_per_step);
  if (seconds_per_step >= 1e-3) return format("%.0fms/step", seconds_per_step * 1e3);
  return format("%.0fus/step", seconds_per_step * 1e6);
}

std::string line_with_bar(const Progress& progress, int64_t bar_width) {
  const bool done = !progress.steps || progress.step >= *progress.steps;
  std::string line = progress.steps ? str(progress.step, "/", *progress.steps, " [",
                                          bar(progress.step, *progress.steps, bar_width), "]")
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

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds));
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lld:%02lld", whole / 60, whole % 60);
  return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_metric(double value) {
  const bool tiny = value != 0 && std::abs(value) < 1e-3;
  return format_number(value, tiny ? std::chars_format::scientific : std::chars_format::fixed, 4);
}

std::string progress_line(const Progress& progress) {
  const std::string line = line_with_bar(progress, kBarWidth);
  if (!progress.width || columns(line) <= *progress.width) return line;
  const int64_t excess = columns(line) - *progress.width;
  return first_columns(line_with_bar(progress, std::max(kShortestBar, kBarWidth - excess)),
                       *progress.width);
}

bool is_live_terminal(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::optional<int64_t> terminal_width(int descriptor) {
  winsize size{};
  const bool is_known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::optional<int64_t>(size.ws_col) : std::nullopt;
}

}  // namespace cohort
