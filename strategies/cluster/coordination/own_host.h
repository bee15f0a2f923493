#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/cluster_resolver.h"

// By which address the workers on other hosts reach this one.
namespace cohort {

// Throws kFailedPrecondition where the others would be told to look for this worker, or the leader,
// on their own hosts: its name stands for a loopback address here, as in the /etc/hosts of some
// systems, or it is at such an address, and there are tasks elsewhere. May take seconds where names
// are looked up.
void check_own_name(const ClusterResolver& resolver);

// The host by which the others reach this worker, who has joined: as the cluster names it, else the
// address from which it reaches the leader. kUnavailable when that fails; throws what `failure`
// returns, which is asked while it waits.
std::string own_host(const ClusterResolver& resolver,
                     const std::function<std::optional<Error>()>& failure);

// This task's address as the cluster names it, and where that was written, for errors: "h1:2222
// (TF_CONFIG.cluster.worker[0])". "" where the cluster does not say.
std::string own_address_as_written(const ClusterResolver& resolver);

}  // namespace cohort
