#include "strategies/cluster/parsing.h"

#include <charconv>

#include "core/base/error.h"

namespace cohort::config {

void refuse(std::string_view place, std::string_view found, std::string_view expected,
            std::string_view example) {
  invalid(place, ": found ", found, "; expected ", expected, ", as in ", example);
}

int64_t parse_integer(std::string_view text, std::string_view place, IntegerRange range,
                      std::string_view example) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < range.min || value > range.max) {
    refuse(place, quote(text), str("an integer from ", range.min, " to ", range.max), example);
  }
  return value;
}

}  // namespace cohort::config
