#pragma once

#include <string>
#include <vector>

namespace cohort {

// The folders of the control groups that limit this process by `controller` ("cpu", "memory"), from
// its own upwards, of version 2 and of version 1; some may not be there, as a container sees the
// paths of its host, but has its own group in the place of the topmost. `root` goes before /proc
// and /sys.
std::vector<std::string> control_groups(const std::string& controller,
                                        const std::string& root = "");

}  // namespace cohort
