#pragma once

#include <string>

#include "strategies/cluster/cluster_resolver.h"

namespace cohort {

// Warns, once in this process, where the tasks on this one's host have more threads together than
// there are cores: the launcher has given none of them cores of its own, and nobody has said by
// OMP_NUM_THREADS how many threads each shall have. `threads`: those with which this task computes.
void warn_of_shared_cores(const ClusterResolver& resolver, int threads);

// The warning, without a newline; "" where the cores suffice, or fewer threads cannot help.
std::string warning_of_shared_cores(int tasks, int threads, int cores);

}  // namespace cohort
