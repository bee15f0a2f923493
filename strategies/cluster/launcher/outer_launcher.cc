#include "strategies/cluster/launcher/outer_launcher.h"

#include <charconv>

#include "core/base/error.h"
#include "strategies/cluster/tf_config_resolver.h"

namespace cohort::launcher {
namespace {

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<OuterLauncher> one_of_several(const std::string& name, std::string_view rank_text,
                                            std::string_view size_text) {
  const auto rank = number(rank_text), size = number(size_text);
  if (!rank || !size || *rank < 0 || *size < 2) return std::nullopt;
  return OuterLauncher{name, *rank, *size};
}

std::optional<OuterLauncher> find_tf_config(const Environment& environment) {
  if (!environment.has("TF_CONFIG")) return std::nullopt;
  try {
    const TFConfigResolver config({}, [&](const std::string& name) {
      return environment.has(name) ? std::optional<std::string>(environment.get(name))
                                   : std::nullopt;
    });
    const ClusterSpec& cluster = config.cluster_spec();
    const int own = config.task_id().value_or(0);
    // An evaluator is one more, which the others need not know.
    const bool is_listed = config.task_type().empty() || cluster.has_task(config.task_type(), own);
    const int size = cluster.empty() ? 0 : cluster.num_tasks() + (is_listed ? 0 : 1);
    if (size < 2) return std::nullopt;
    return OuterLauncher{"TF_CONFIG", own, size};
  } catch (const Error& error) {
    throw error.with_context(
        "whether cohort-run is one of several tasks (--standalone starts a cluster in any case)");
  }
}

std::optional<OuterLauncher> find_slurm(const Environment& environment) {
  std::string_view size = environment.get("SLURM_STEP_NUM_TASKS");
  // A batch script has a rank of 0 and the number of tasks of its job, but is in no step.
  if (size.empty() && environment.get("ENVIRONMENT") != "BATCH")
    size = environment.get("SLURM_NTASKS");
  return one_of_several("srun", environment.get("SLURM_PROCID"), size);
}

// Slurm and Open MPI, which set these too, say how many there are themselves.
std::optional<OuterLauncher> find_pmix(const Environment& environment) {
  if (!environment.has("PMIX_RANK") || environment.has("SLURM_STEP_NUM_TASKS")) return std::nullopt;
  if (!environment.has("WORLD_SIZE")) {
    invalid(
        "PMIX_RANK is set and WORLD_SIZE is not, so that cohort-run cannot know whether it is ",
        "one of several tasks: prun -x WORLD_SIZE=8 says so, and --standalone starts a cluster ",
        "in any case");
  }
  return one_of_several("a PMIx launcher", environment.get("PMIX_RANK"),
                        environment.get("WORLD_SIZE"));
}

}  // namespace

std::optional<OuterLauncher> find_outer_launcher(const Environment& environment) {
  if (auto config = find_tf_config(environment)) return config;
  if (auto torchrun = one_of_several("torchrun (RANK and WORLD_SIZE)", environment.get("RANK"),
                                     environment.get("WORLD_SIZE"))) {
    return torchrun;
  }
  // Inside a Slurm job mpirun starts its daemons by srun: what Slurm says is about these.
  if (environment.has("OMPI_COMM_WORLD_RANK")) {
    return one_of_several("mpirun", environment.get("OMPI_COMM_WORLD_RANK"),
                          environment.get("OMPI_COMM_WORLD_SIZE"));
  }
  if (auto slurm = find_slurm(environment)) return slurm;
  if (auto pmi = one_of_several("a PMI launcher", environment.get("PMI_RANK"),
                                environment.get("PMI_SIZE"))) {
    return pmi;
  }
  if (auto pmix = find_pmix(environment)) return pmix;
  return one_of_several("an indexed Job", environment.get("JOB_COMPLETION_INDEX"),
                        environment.get("COHORT_KUBERNETES_PODS"));
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
