#include "strategies/cluster/resolve_cluster.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "strategies/cluster/kubernetes_resolver.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/cluster/mpi_resolver.h"
#include "strategies/cluster/settings.h"
#include "strategies/cluster/slurm_resolver.h"
#include "strategies/cluster/tf_config_resolver.h"
#include "strategies/cluster/torchrun_resolver.h"

namespace cohort {
namespace {

using ResolverPtr = std::shared_ptr<const ClusterResolver>;

std::atomic<bool> g_has_used_cluster = false;

struct Candidate {
  std::string launcher;
  std::string sign;  // the variable by which it is known
  std::string rank;  // the variable that says which task this is; "" without any
  std::string size;  // that says how many there are; "" without any
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
      {"TF_CONFIG", "TF_CONFIG", "", "", is_set("TF_CONFIG"),
       [&] { return std::make_shared<TFConfigResolver>(TFConfigResolverOptions{}, environment); }},
      {"torchrun", "RANK", "RANK", "WORLD_SIZE", is_set("RANK") && is_set("WORLD_SIZE"),
       [&] { return std::make_shared<TorchrunResolver>(environment); }},
      {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
       is_set("OMPI_COMM_WORLD_RANK"), mpi},
      {"PMI", "PMI_RANK", "PMI_RANK", "PMI_SIZE", is_set("PMI_RANK") && !pmi_of_slurm, mpi},
      {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", slurm_step,
       [&] { return std::make_shared<SlurmResolver>(SlurmResolverOptions{}, environment); }},
      // By itself PMIx tells the number only to MPI: WORLD_SIZE is passed on by hand (MpiResolver).
      {"PMIx", "PMIX_RANK", "PMIX_RANK", "WORLD_SIZE", is_set("PMIX_RANK"), mpi},
      // All that runs in a pod has its variables, the cluster of one that cohort-run starts there,
      // too: they do not say that this process is one of several.
      {"Kubernetes", "JOB_COMPLETION_INDEX", "", "", is_set("JOB_COMPLETION_INDEX") && service,
       [&] {
         return std::make_shared<KubernetesResolver>(KubernetesResolverOptions{}, environment);
       }},
  };
}

// A job of one task has no cluster to miss.
bool is_slurm_job_of_several(const Environment& environment) {
  constexpr const char* kNumbers[] = {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE",
                                      "SLURM_JOB_NUM_NODES"};
  return environment("SLURM_JOB_ID") && std::ranges::any_of(kNumbers, [&](const char* name) {
           return environment(name).value_or("1") != "1";
         });
}

// Of a launcher that is there but has not started this process as one of several.
std::string hint_of(const Environment& environment) {
  if (is_slurm_job_of_several(environment)) {
    return "this is a Slurm job, in which srun starts the tasks of a cluster";
  }
  if (environment("JOB_COMPLETION_INDEX")) {
    return "this is a pod of an indexed Job, which needs COHORT_KUBERNETES_SERVICE and "
           "COHORT_KUBERNETES_PODS to be a cluster";
  }
  for (const char* name : {"COHORT_KUBERNETES_SERVICE", "COHORT_KUBERNETES_PODS"}) {
    if (environment(name)) {
      return str(name,
                 " is set, and JOB_COMPLETION_INDEX is not, as in the pods of a Job without "
                 "completionMode: Indexed, which it needs to be a cluster");
    }
  }
  struct Pair {
    const char* sign;
    const char* missing;
  };
  for (const auto& [sign, missing] :
       {Pair{"RANK", "WORLD_SIZE"}, Pair{"WORLD_SIZE", "RANK"},
        Pair{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Pair{"PMI_SIZE", "PMI_RANK"}}) {
    if (environment(sign) && !environment(missing))
      return str(sign, " is set, which needs ", missing, " beside it to be a cluster");
  }
  return "";
}

// A cluster of which this is the only task. An evaluator, and a TF_CONFIG without a cluster, are
// none: they are meant to be on their own.
bool is_only_task(const ClusterResolver& resolver) {
  if (resolver.task_type() == "evaluator") return false;
  const ClusterSpec& spec = resolver.cluster_spec();
  return spec.empty() ? resolver.leader() && resolver.world().size == 1 : spec.num_tasks() == 1;
}

// The number in a variable of a launcher that may not count; `none` where there is none.
int64_t number_in(const std::string& name, const Environment& environment, int64_t none) {
  const std::string text = name.empty() ? "" : environment(name).value_or("");
  int64_t number = none;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// How many tasks the candidate says that there are; 0 where it does not.
int64_t count_of(const Candidate& candidate, const Environment& environment) {
  return number_in(candidate.size, environment, 0);
}

std::string advice(const std::string& right) {
  return str("unset the former, or give the strategy the resolver of ", right,
             " (docs/cluster.md, Which launcher counts)");
}

// Of a launcher of several that a cluster of one task keeps from being heard. TF_CONFIG and RANK
// may be left from before it; what comes after these is set for this process by the innermost
// launcher, and counts whatever the outer ones say.
std::string hint_of_several(const std::vector<Candidate>& all, const Environment& environment) {
  std::string left;
  for (const Candidate& candidate : all) {
    if (!candidate.applies) continue;
    const int64_t count = count_of(candidate, environment);
    const std::string said = str(candidate.size, "=", count);
    if (count > 1) {
      return str("there is one task by ", left, ", which comes before ", said, " of ",
                 candidate.launcher, ": ", advice(candidate.launcher));
    }
    if (candidate.sign != "TF_CONFIG" && candidate.sign != "RANK") return "";
    left += str(left.empty() ? "" : ", ", candidate.sign, count == 0 ? "" : str(" and ", said));
  }
  return "";
}

// A RANK that is left from before a launcher of as many processes makes several of them the same
// task. Not of one that torchrun has set, which numbers its processes as they come, whatever has
// started it. Only the next launcher is asked: those after it may have started its daemons. PMIx
// has no size of its own.
void check_rank(const std::vector<Candidate>& all, const Candidate& chosen,
                const ClusterResolver& resolver, const Environment& environment) {
  if (chosen.sign != "RANK" || environment("TORCHELASTIC_RUN_ID")) return;
  const auto next = std::find_if(all.begin() + (&chosen - all.data()) + 1, all.end(),
                                 [](const Candidate& candidate) { return candidate.applies; });
  if (next == all.end() || next->size == chosen.size) return;
  const World world = resolver.world();
  const int64_t rank = number_in(next->rank, environment, world.rank);
  if (rank == world.rank || count_of(*next, environment) != world.size) return;
  invalid("this is another task by RANK=", world.rank, " and WORLD_SIZE=", world.size,
          ", which comes before ", next->rank, "=", rank, " and ", next->size, "=", world.size,
          " of ", next->launcher, ": ", advice(next->launcher),
          "; where the former is right, that of torchrun");
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
    const std::string hint = hint_of(environment);
    return {std::make_shared<LiteralResolver>(),
            str("no launcher's variables are set", hint.empty() ? "" : "; ", hint), hint};
  }
  const ResolverPtr resolver = chosen->resolve();
  check_rank(all, *chosen, *resolver, environment);
  const std::string hint = is_only_task(*resolver) ? hint_of_several(all, environment) : "";
  return {resolver,
          str(chosen->sign, " is set", others.empty() ? "" : str(", which comes before ", others),
              hint.empty() ? "" : "; ", hint),
          hint};
}

std::shared_ptr<const ClusterResolver> resolve_own_cluster() {
  warn_of_unknown_settings();
  static std::once_flag told;
  const ResolvedCluster cluster = resolve_cluster();
  if (!cluster.hint.empty()) {
    std::call_once(told, [&] {
      print_notice(str("warning: this process trains alone: ", cluster.hint,
                       " (TF_CONFIG='{}' says that it is meant to)\n"));
    });
  }
  return cluster.resolver;
}

bool has_used_cluster() { return g_has_used_cluster; }
void note_use_of_cluster() { g_has_used_cluster = true; }

}  // namespace cohort
