#include "strategies/cluster/launcher/outer_launcher.h"

#include <charconv>

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

std::optional<OuterLauncher> find_slurm(const Environment& environment) {
  std::string_view size = environment.get("SLURM_STEP_NUM_TASKS");
  // A batch script has a rank of 0 and the number of tasks of its job, but is in no step.
  if (size.empty() && environment.get("ENVIRONMENT") != "BATCH")
    size = environment.get("SLURM_NTASKS");
  return one_of_several("srun", environment.get("SLURM_PROCID"), size);
}

}  // namespace

std::optional<OuterLauncher> find_outer_launcher(const Environment& environment) {
  // Inside a Slurm job mpirun starts its daemons by srun: what Slurm says is about these.
  if (environment.has("OMPI_COMM_WORLD_RANK")) {
    return one_of_several("mpirun", environment.get("OMPI_COMM_WORLD_RANK"),
                          environment.get("OMPI_COMM_WORLD_SIZE"));
  }
  if (auto slurm = find_slurm(environment)) return slurm;
  return one_of_several("a PMI launcher", environment.get("PMI_RANK"), environment.get("PMI_SIZE"));
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
