#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/flags.h"

namespace cohort {

// Where resolvers read variables from: the value of a variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// The environment of this process.
std::optional<std::string> process_environment(const std::string& name);

namespace config {

// The value of a variable that must be set; the error gives `example`, a value.
std::string required_text(const Environment& environment, const std::string& name,
                          const std::string& example);
// The same for an integer in `range`.
int required_integer(const Environment& environment, const std::string& name, IntegerRange range,
                     const std::string& example);
// The integer where the variable is set.
std::optional<int> optional_integer(const Environment& environment, const std::string& name,
                                    IntegerRange range, const std::string& example);

}  // namespace config
}  // namespace cohort
