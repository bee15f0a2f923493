#include "strategies/coordinator/scheduler.h"

#include "core/base/error.h"
#include "strategies/cluster/cluster_roles.h"

namespace cohort::coordinator {

std::string scheduler_of(const ClusterSpec& cluster) {
  std::string leader = collective_leader(cluster, "worker", cluster.task_ids("worker").at(0));
  if (leader.empty())
    fail(Code::kFailedPrecondition,
         "chief:0 schedules, or worker:0 of a cluster without it, and this one has neither: ",
         cluster.json());
  return leader;
}

}  // namespace cohort::coordinator
