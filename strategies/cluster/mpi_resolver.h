#pragma once

#include <functional>
#include <string>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/pmix.h"

namespace cohort {

// The host of a rank of this job; throws what keeps it from knowing.
using RankHost = std::function<std::string(int rank)>;

// The variables that MPI launchers give each process. The first family that is set counts:
//
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, and _LOCAL_RANK, _LOCAL_SIZE
//   PMI        PMI_RANK, PMI_SIZE, and MPI_LOCALRANKID, MPI_LOCALNRANKS (MPICH, Intel MPI)
//   PMIx       PMIX_RANK, WORLD_SIZE, and LOCAL_RANK, LOCAL_WORLD_SIZE: PMIx itself tells the size
//              only to MPI, so that it has to be passed on: prun -x WORLD_SIZE=8
//
// Each process is a worker. The leader's address is MASTER_ADDR and MASTER_PORT where they are set
// (mpirun -x MASTER_ADDR=10.0.0.1 -x MASTER_PORT=29500). Otherwise its port follows from the key or
// id of the run (OMPI_MCA_orte_precondition_transports, PMIX_NAMESPACE, PMI_JOBID), and its host is
// 127.0.0.1 where all ranks are on this host; on several, what `host_of` says of rank 0, and not
// known where that throws.
class MpiResolver : public ClusterResolver {
 public:
  explicit MpiResolver(const Environment& environment = process_environment,
                       const RankHost& host_of = pmix_host);
};

}  // namespace cohort
