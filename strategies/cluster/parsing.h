#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/flags.h"
#include "core/base/quote.h"

// What the parsers of cluster configurations share: how they refuse and read numbers.
namespace cohort::config {

// Throws kInvalidArgument: "PLACE: found FOUND; expected EXPECTED, as in EXAMPLE".
[[noreturn]] void refuse(std::string_view place, std::string_view found, std::string_view expected,
                         std::string_view example);

// A decimal integer in `range`, both ends of which must be given; refuses anything else.
int64_t parse_integer(std::string_view text, std::string_view place, IntegerRange range,
                      std::string_view example);

// The most tasks, hosts or ranks that any configuration may name.
inline constexpr int kMaxTasks = 1'000'000;

}  // namespace cohort::config
