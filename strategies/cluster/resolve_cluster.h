#pragma once

#include <memory>
#include <string>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"

namespace cohort {

struct ResolvedCluster {
  std::shared_ptr<const ClusterResolver> resolver;
  // Why this resolver, and which others would have applied, in one line for people.
  std::string reason;
  // For a program on its own, the sign of a launcher that is there and has not started it as one of
  // several, and what that needs; for the only task of a cluster from TF_CONFIG or torchrun, the
  // launcher after it that says that there are more, and what to do; "" without any.
  std::string hint = {};
};

// The cluster that the environment describes. The first of these counts, from what a person wrote
// to what a launcher sets by itself, and an inner launcher before the one that it runs under:
//
//   1. TF_CONFIG      TF_CONFIG is set
//   2. torchrun       RANK and WORLD_SIZE are set
//   3. Open MPI       OMPI_COMM_WORLD_RANK is set
//   4. PMI            PMI_RANK is set, and this is no Slurm step of PMI_SIZE tasks
//   5. Slurm          SLURM_STEP_NUM_TASKS is set: a process that srun started
//   6. PMIx           PMIX_RANK is set
//   7. Kubernetes     JOB_COMPLETION_INDEX and COHORT_KUBERNETES_SERVICE or _PODS are set
//   8. literal        none of these: a program on its own
//
// What counts must be right: a mistake in it is an error, and the next is not tried. So is a RANK
// that torchrun has not set (TORCHELASTIC_RUN_ID) where the next one has as many tasks and another
// rank for this one.
ResolvedCluster resolve_cluster(const Environment& environment = process_environment);

// The resolver of resolve_cluster(), for who is going to train. Where there is a hint, a notice
// tells of it, once in this process: several processes that each train alone look like a success.
// Warns of unknown settings, too.
std::shared_ptr<const ClusterResolver> resolve_own_cluster();

// Whether something in this process takes part in a cluster, or has.
bool has_used_cluster();
void note_use_of_cluster();

}  // namespace cohort
