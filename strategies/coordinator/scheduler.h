#pragma once

#include <string>

#include "strategies/cluster/cluster_spec.h"

namespace cohort::coordinator {

// Who schedules, where nothing else is said: also a coordinator without a strategy.
inline constexpr char kChief[] = "chief:0";

// The task that schedules what the workers of a cluster, of which there is one at least, execute:
// the one that leads them (collective_leader). kFailedPrecondition where there is none.
std::string scheduler_of(const ClusterSpec& cluster);

}  // namespace cohort::coordinator
