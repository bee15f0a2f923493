#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace cohort {

// What fit() returns: the results of each epoch that was completed. Not every epoch has each of
// them: of validation only those that were validated, and loss and metrics only those with rows,
// which a worker on its own may have none of (InputContext::independent).
struct History {
  std::vector<int64_t> epochs;                         // their numbers, from 0
  std::map<std::string, std::vector<double>> results;  // by name: "loss", "val_accuracy", ...
  std::string stop_reason;                             // why training ended early; else empty

  // kNotFound when there is no such name.
  const std::vector<double>& operator[](const std::string& name) const {
    const auto found = results.find(name);
    if (found == results.end()) fail(Code::kNotFound, "the history has no \"", name, "\"");
    return found->second;
  }
};

}  // namespace cohort
