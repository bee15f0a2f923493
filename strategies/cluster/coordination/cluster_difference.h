#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "strategies/cluster/cluster_spec.h"

// How a task that was given another cluster than its leader learns where they differ.
namespace cohort::coordination {

// The leader's cluster, for such a task; "" where it takes more than 64 KiB.
std::string told_cluster(const ClusterSpec& leaders);

// The first task that the two have at different places: "worker:1 is at b:2222 in this task's
// cluster, and at c:2222 in the leader's", or "missing". `told` has come over the network: nothing
// where it is not what told_cluster() gives for another cluster.
std::optional<std::string> cluster_difference(const ClusterSpec& own, std::string_view told);

}  // namespace cohort::coordination
