#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/launcher/environment.h"

namespace cohort::launcher {

// Who started this process as one of several.
struct OuterLauncher {
  std::string name;  // "srun"
  int rank = 0;
  int size = 0;  // at least 2
};

// What Slurm, Open MPI or PMI say about this process; nothing when it was started alone. A batch
// script of Slurm is alone, however many tasks its job may start.
std::optional<OuterLauncher> find_outer_launcher(const Environment& environment);

// Removes what says which one of several this process is: it is not true of processes that it
// starts.
void forget_outer_launcher(Environment& environment);

}  // namespace cohort::launcher
