#include "strategies/cluster/resolve_cluster.h"

#include <functional>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/kubernetes_resolver.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/cluster/mpi_resolver.h"
#include "strategies/cluster/slurm_resolver.h"
#include "strategies/cluster/tf_config_resolver.h"
#include "strategies/cluster/torchrun_resolver.h"

namespace cohort {
namespace {

using ResolverPtr = std::shared_ptr<const ClusterResolver>;

struct Candidate {
  std::string launcher;
  std::string sign;  // the variable by which it is known
  bool applies;
  std::function<ResolverPtr()> resolve;
};

std::vector<Candidate> candidates(const Environment& environment) {
  const auto is_set = [&](const char* name) { return environment(name).has_value(); };
  const auto mpi = [&environment] { return std::make_shared<MpiResolver>(environment); };
  const bool slurm_step = is_set("SLURM_STEP_NUM_TASKS");
  const bool pmi_of_slurm =
      slurm_step && environment("PMI_SIZE") == environment("SLURM_STEP_NUM_TASKS");
  const bool service = is_set("COHORT_KUBERNETES_SERVICE") || is_set("COHORT_KUBERNETES_PODS");
  return {
      {"TF_CONFIG", "TF_CONFIG", is_set("TF_CONFIG"),
       [&] { return std::make_shared<TFConfigResolver>(TFConfigResolverOptions{}, environment); }},
      {"torchrun", "RANK", is_set("RANK") && is_set("WORLD_SIZE"),
       [&] { return std::make_shared<TorchrunResolver>(environment); }},
      {"Open MPI", "OMPI_COMM_WORLD_RANK", is_set("OMPI_COMM_WORLD_RANK"), mpi},
      {"PMI", "PMI_RANK", is_set("PMI_RANK") && !pmi_of_slurm, mpi},
      {"Slurm", "SLURM_STEP_NUM_TASKS", slurm_step,
       [&] { return std::make_shared<SlurmResolver>(SlurmResolverOptions{}, environment); }},
      {"PMIx", "PMIX_RANK", is_set("PMIX_RANK"), mpi},
      {"Kubernetes", "JOB_COMPLETION_INDEX", is_set("JOB_COMPLETION_INDEX") && service,
       [&] {
         return std::make_shared<KubernetesResolver>(KubernetesResolverOptions{}, environment);
       }},
  };
}

// Signs of a launcher that is there but has not started this process as one of several.
std::string hint(const Environment& environment) {
  if (environment("SLURM_JOB_ID")) {
    return "; this is a Slurm job, in which srun starts the tasks of a cluster";
  }
  if (environment("JOB_COMPLETION_INDEX")) {
    return "; this is a pod of an indexed Job, which needs COHORT_KUBERNETES_SERVICE and "
           "COHORT_KUBERNETES_PODS to be a cluster";
  }
  if (environment("RANK").has_value() != environment("WORLD_SIZE").has_value()) {
    const bool rank = environment("RANK").has_value();
    return str("; ", rank ? "RANK" : "WORLD_SIZE", " is set, which needs ",
               rank ? "WORLD_SIZE" : "RANK", " beside it to be a cluster");
  }
  return "";
}

}  // namespace

ResolvedCluster resolve_cluster(const Environment& environment) {
  const Candidate* chosen = nullptr;
  std::string others;
  const auto all = candidates(environment);
  for (const Candidate& candidate : all) {
    if (!candidate.applies) continue;
    if (chosen == nullptr) {
      chosen = &candidate;
    } else {
      others += str(others.empty() ? "" : ", ", candidate.sign, " (", candidate.launcher, ")");
    }
  }
  if (chosen == nullptr) {
    return {std::make_shared<LiteralResolver>(),
            str("no launcher's variables are set", hint(environment))};
  }
  return {chosen->resolve(),
          str(chosen->sign, " is set", others.empty() ? "" : str(", which comes before ", others))};
}

}  // namespace cohort
