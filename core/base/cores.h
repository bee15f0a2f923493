#pragma once

#include <optional>
#include <string>

namespace cohort {

// How many cores this process, and what it starts, may keep busy, at least 1: those that its
// affinity names, or where OpenMP pins threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) those
// of its places; fewer where its control groups grant less time, as those of a container do.
int available_cores();

// Whether these are all cores of the host, on which other processes then run as well: nobody has
// given this process some of them.
bool may_use_every_core();

// Where OpenMP pins threads, lets the calling one, and what it starts, run on all of its places:
// OpenMP has put the main thread on the first of them, which threads and processes inherit. It pins
// a thread anew that begins to lead a team. Elsewhere this changes nothing.
void use_all_cores();

// How many cores' time the control groups of this process grant, in whole cores, rounded up;
// nothing where they set no limit that could be read. Of version 2, or 1, and of all groups from
// its own upwards. `root` goes before /proc and /sys.
std::optional<int> cores_of_control_groups(const std::string& root = "");

}  // namespace cohort
