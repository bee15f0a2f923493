#pragma once

#include <string>

#include "core/base/error.h"
#include "strategies/cluster/coordination/random_ids.h"

namespace cohort::coordinator {

// A name by which workers may know a variable: others may have its own name, too.
inline std::string name_on_workers(const std::string& own) {
  return str(own, '#', coordination::random_incarnation());
}

// The variable's own name, for messages.
inline std::string own_name(const std::string& on_workers) {
  return on_workers.substr(0, on_workers.rfind('#'));
}

}  // namespace cohort::coordinator
