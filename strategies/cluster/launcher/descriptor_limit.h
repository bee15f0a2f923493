#pragma once

#include "strategies/cluster/launcher/options.h"

namespace cohort::launcher {

// Lets this process, and those that it forks, have as many descriptors (`ulimit -n`) as the system
// allows, since each task takes several. kResourceExhausted where they cannot suffice for the tasks
// that `options` ask for.
void raise_descriptor_limit(const Options& options);

// To be called in a new process before it becomes another program, which is to have the limit that
// cohort-run was started with. Nothing where that was not raised.
void restore_descriptor_limit();

}  // namespace cohort::launcher
