#pragma once

#include <string>

namespace cohort {

// This machine's name, as `hostname` prints it; `otherwise` where it has none.
std::string host_name(const std::string& otherwise);

}  // namespace cohort
