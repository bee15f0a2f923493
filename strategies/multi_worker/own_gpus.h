#pragma once

#include <vector>

#include "core/device/device.h"
#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"

namespace cohort {

// Which of the `count` GPUs that this process has are those of its task, where the program names
// none. Those that the launcher gives it (ClusterResolver::gpus()). Where it gives none in
// particular and says how many tasks share the host, or LOCAL_RANK and LOCAL_WORLD_SIZE do, an
// equal share, without what is left over; of fewer GPUs than tasks, one that others use as well.
// All where nobody says. kInvalidArgument for a GPU of the launcher's that this process does not
// have.
std::vector<Device> own_gpus(const ClusterResolver& resolver, int count,
                             const Environment& environment = process_environment);

}  // namespace cohort
