#include "strategies/cluster/environment.h"

#include <cstdlib>

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort {

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

namespace config {

std::string required_text(const Environment& environment, const std::string& name,
                          const std::string& example) {
  auto value = environment(name);
  if (!value || value->empty()) {
    refuse(name, value ? "an empty value" : "no such variable", "a value", str(name, "=", example));
  }
  return *std::move(value);
}

int required_integer(const Environment& environment, const std::string& name, IntegerRange range,
                     const std::string& example) {
  const std::string text = required_text(environment, name, example);
  return static_cast<int>(parse_integer(text, name, range, str(name, "=", example)));
}

std::optional<int> optional_integer(const Environment& environment, const std::string& name,
                                    IntegerRange range, const std::string& example) {
  if (!environment(name)) return std::nullopt;
  return required_integer(environment, name, range, example);
}

}  // namespace config
}  // namespace cohort
