#pragma once

#include <string>
#include <vector>

namespace cohort {

// The ops that are defined in this program, sorted.
std::vector<std::string> registered_ops();

}  // namespace cohort
