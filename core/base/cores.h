#pragma once

#include <optional>
#include <string>

namespace cohort {

// How many cores this process, and what it starts, may keep busy, at least 1: those that its
// affinity names, or fewer where its control groups grant less time, as those of a container do.
int available_cores();

// How many cores' time the control groups of this process grant, in whole cores, rounded up;
// nothing where they set no limit that could be read. Of version 2, or 1, and of all groups from
// its own upwards. `root` goes before /proc and /sys.
std::optional<int> cores_of_control_groups(const std::string& root = "");

}  // namespace cohort
