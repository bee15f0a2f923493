#pragma once

#include <memory>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/collective/communication_backend.h"
#include "strategies/multi_worker/worker_link.h"

namespace cohort {

// The link of this task to the other chief and workers of its cluster, which are processes: a
// Membership, and the communicators that suit where they are. Waits until all have joined; the
// errors of Membership::join() and check_own_name(). Worker 0 tells on standard error by what the
// group "replicas" is connected. A task on its own has a link without any network.
std::shared_ptr<WorkerLink> join_cluster(
    const ClusterResolver& resolver, const MembershipOptions& options,
    CommunicationBackend backend = CommunicationBackend::kAuto);

}  // namespace cohort
