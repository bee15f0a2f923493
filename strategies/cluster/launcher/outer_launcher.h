#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/launcher/environment.h"

namespace cohort::launcher {

// Who started this process as one of several.
struct OuterLauncher {
  std::string name;  // "srun"
  int rank = 0;      // where TF_CONFIG tells, the number among the tasks of its job
  int size = 0;      // at least 2
};

// What TF_CONFIG says about this process, or the variables of torchrun, Open MPI, Slurm, PMI, PMIx
// or an indexed Job of Kubernetes; nothing when it was started alone. A batch script of Slurm is
// alone, however many tasks its job may start. kInvalidArgument for a TF_CONFIG that cannot be
// read, for a rank and a number of tasks of which one is no number in its range, and where PMIx has
// started it and nothing tells how many there are.
std::optional<OuterLauncher> find_outer_launcher(const Environment& environment);

// Removes what says which one of several this process is: it is not true of processes that it
// starts.
void forget_outer_launcher(Environment& environment);

}  // namespace cohort::launcher
