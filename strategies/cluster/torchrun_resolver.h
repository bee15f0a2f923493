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
// Each process is a worker. Only the leader's address is known. The ranks are on several hosts
// where LOCAL_WORLD_SIZE is less than WORLD_SIZE, unless MASTER_ADDR is a loopback address or
// localhost, as for several agents on one host.
class TorchrunResolver : public ClusterResolver {
 public:
  explicit TorchrunResolver(const Environment& environment = process_environment);
};

}  // namespace cohort
