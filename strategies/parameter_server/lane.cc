#include "strategies/parameter_server/lane.h"

#include <charconv>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

constexpr std::string_view kPrefix = "chief:0/lane-";

}  // namespace

std::string lane_name(uint64_t lane) { return str(kPrefix, lane); }

bool is_lane_name(const std::string& text) {
  if (!text.starts_with(kPrefix)) return false;
  uint64_t lane = 0;
  const auto read = std::from_chars(text.data() + kPrefix.size(), text.data() + text.size(), lane);
  return read.ec == std::errc() && lane_name(lane) == text;
}

}  // namespace cohort::parameter_server
