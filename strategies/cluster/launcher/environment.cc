#include "strategies/cluster/launcher/environment.h"

#include <unistd.h>

#include "core/base/error.h"

namespace cohort::launcher {

Environment Environment::current() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos)
      environment.set(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string_view Environment::get(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? std::string_view() : found->second;
}

std::vector<std::string> Environment::strings() const {
  std::vector<std::string> out;
  out.reserve(variables_.size());
  for (const auto& [name, value] : variables_) out.push_back(str(name, "=", value));
  return out;
}

}  // namespace cohort::launcher
