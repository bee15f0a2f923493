#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/environment.h"

namespace cohort::testing {

using Variables = std::map<std::string, std::string>;

// An environment of exactly these variables.
inline Environment environment(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  };
}

// The message of the kInvalidArgument that `f` throws; anything else gives another text.
inline std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code() == Code::kInvalidArgument ? error.message() : error.what();
  }
  return "no error";
}

}  // namespace cohort::testing
