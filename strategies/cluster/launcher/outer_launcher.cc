#include "strategies/cluster/launcher/outer_launcher.h"

#include "core/base/error.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/parsing.h"
#include "strategies/cluster/tf_config_resolver.h"

namespace cohort::launcher {
namespace {

cohort::Environment variables_of(const Environment& environment) {
  return [&environment](const std::string& name) {
    return environment.has(name) ? std::optional<std::string>(environment.get(name)) : std::nullopt;
  };
}

// From the variables of a launcher that has set both.
std::optional<OuterLauncher> one_of_several(const Environment& environment, const std::string& name,
                                            const std::string& rank_name,
                                            const std::string& size_name) {
  if (!environment.has(rank_name) || !environment.has(size_name)) return std::nullopt;
  const auto variables = variables_of(environment);
  const int size =
      config::required_integer(variables, size_name, {.min = 1, .max = config::kMaxTasks}, "2");
  const int rank = config::required_integer(variables, rank_name, {.min = 0, .max = size - 1}, "0");
  if (size < 2) return std::nullopt;
  return OuterLauncher{name, rank, size};
}

std::optional<OuterLauncher> find_tf_config(const Environment& environment) {
  if (!environment.has("TF_CONFIG")) return std::nullopt;
  const TFConfigResolver config({}, variables_of(environment));
  const ClusterSpec& cluster = config.cluster_spec();
  const int own = config.task_id().value_or(0);
  // An evaluator is one more, which the others need not know.
  const bool is_listed = config.task_type().empty() || cluster.has_task(config.task_type(), own);
  const int size = cluster.empty() ? 0 : cluster.num_tasks() + (is_listed ? 0 : 1);
  if (size < 2) return std::nullopt;
  return OuterLauncher{"TF_CONFIG", own, size};
}

std::optional<OuterLauncher> find_slurm(const Environment& environment) {
  if (environment.has("SLURM_STEP_NUM_TASKS"))
    return one_of_several(environment, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  // A batch script has a rank of 0 and the number of tasks of its job, but is in no step.
  if (environment.get("ENVIRONMENT") == "BATCH") return std::nullopt;
  return one_of_several(environment, "srun", "SLURM_PROCID", "SLURM_NTASKS");
}

// Slurm and Open MPI, which set these too, say how many there are themselves.
std::optional<OuterLauncher> find_pmix(const Environment& environment) {
  if (!environment.has("PMIX_RANK") || environment.has("SLURM_STEP_NUM_TASKS")) return std::nullopt;
  if (!environment.has("WORLD_SIZE")) {
    invalid("PMIX_RANK is set and WORLD_SIZE is not; prun -x WORLD_SIZE=8 says how many there are");
  }
  return one_of_several(environment, "a PMIx launcher", "PMIX_RANK", "WORLD_SIZE");
}

std::optional<OuterLauncher> find(const Environment& environment) {
  if (auto config = find_tf_config(environment)) return config;
  if (auto torchrun =
          one_of_several(environment, "torchrun (RANK and WORLD_SIZE)", "RANK", "WORLD_SIZE")) {
    return torchrun;
  }
  // Inside a Slurm job mpirun starts its daemons by srun: what Slurm says is about these.
  if (environment.has("OMPI_COMM_WORLD_RANK")) {
    return one_of_several(environment, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  }
  if (auto slurm = find_slurm(environment)) return slurm;
  if (auto pmi = one_of_several(environment, "a PMI launcher", "PMI_RANK", "PMI_SIZE")) return pmi;
  if (auto pmix = find_pmix(environment)) return pmix;
  return one_of_several(environment, "an indexed Job", "JOB_COMPLETION_INDEX",
                        "COHORT_KUBERNETES_PODS");
}

}  // namespace

std::optional<OuterLauncher> find_outer_launcher(const Environment& environment) {
  try {
    return find(environment);
  } catch (const Error& error) {
    throw error.with_context(
        "whether cohort-run is one of several tasks (--standalone starts a cluster in any case)");
  }
}

void forget_outer_launcher(Environment& environment) {
  for (const char* name :
       {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NUM_TASKS",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD",
        "PMIX_RANK", "PMIX_NAMESPACE"}) {
    environment.unset(name);
  }
}

}  // namespace cohort::launcher
