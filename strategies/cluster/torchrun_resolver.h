#pragma once

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"

namespace cohort {

// The variables that torchrun and its relatives give each process:
//
//   RANK, WORLD_SIZE                 required
//   MASTER_ADDR, MASTER_PORT         where rank 0 listens; required
//   LOCAL_RANK, LOCAL_WORLD_SIZE     among the processes of this host
//   TORCHELASTIC_USE_AGENT_STORE     True: torchrun itself listens on MASTER_PORT, and the leader
//                                    on the port after it
//
// Each process is a worker. Only the leader's address is known.
class TorchrunResolver : public ClusterResolver {
 public:
  explicit TorchrunResolver(const Environment& environment = process_environment);
};

}  // namespace cohort
