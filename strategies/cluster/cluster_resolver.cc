#include "strategies/cluster/cluster_resolver.h"

#include "core/base/error.h"
#include "strategies/cluster/cluster_roles.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

// Where a resolver has read a task's address.
std::string place_of(const ClusterFacts& facts, const std::string& task) {
  for (const Fact& fact : facts.facts) {
    if (fact.name == task) return fact.source;
  }
  return facts.launcher;
}

// Ranks follow from the numbers of workers, which must have no gap.
void check_numbers(const ClusterFacts& facts) {
  const auto workers = facts.spec.task_ids("worker");
  const int count = static_cast<int>(workers.size());
  if (workers.empty() || workers.back() == count - 1) return;
  const std::string last = str("worker:", workers.back());
  config::refuse(
      place_of(facts, last),
      str(last, " among workers that are numbered ", facts.spec.describe_task_ids("worker")),
      count == 1 ? "the number 0" : str("the numbers 0 to ", count - 1),
      R"("worker": ["host0:2222", "host1:2222"])");
}

}  // namespace

std::string ClusterResolver::master(const std::optional<std::string>& task_type,
                                    std::optional<int> task_id,
                                    const std::optional<std::string>& rpc_layer) const {
  if (facts_.session_master) return *facts_.session_master;
  if (facts_.spec.num_tasks() <= 1) return "";
  const std::string type = task_type.value_or(facts_.task_type);
  const std::optional<int> id = task_id ? task_id : facts_.task_id;
  if (type.empty() || !id) {
    invalid(launcher(), " does not say which task this is; master() needs a task type and index");
  }
  const std::string layer = rpc_layer.value_or(facts_.rpc_layer);
  return str(layer, layer.empty() ? "" : "://", facts_.spec.address(type, *id).text());
}

World ClusterResolver::world() const {
  if (facts_.world) return *facts_.world;
  const ClusterSpec& spec = facts_.spec;
  if (spec.empty() || facts_.task_type == "evaluator") return {};
  if (facts_.task_type.empty() || !facts_.task_id) {
    if (spec.num_tasks() == 1) return {};
    config::refuse(launcher(),
                   str("a cluster of ", spec.num_tasks(), " tasks and not which of them this is"),
                   "its type and index", R"("task": {"type": "worker", "index": 0})");
  }
  if (facts_.is_partial)
    config::refuse(launcher(), "a sparseCluster, which names of the workers this one alone",
                   "the addresses of all workers, as TFJob gives without enableDynamicWorker",
                   R"("cluster": {"worker": ["host0:2222", "host1:2222"]})");
  check_numbers(facts_);
  return {.rank = id_in_cluster(spec, facts_.task_type, *facts_.task_id),
          .size = worker_count(spec, facts_.task_type)};
}

std::optional<Address> ClusterResolver::leader() const {
  if (facts_.leader) return facts_.leader;
  if (facts_.task_type == "evaluator") return {};
  for (const std::string job : {"chief", "worker"}) {
    if (facts_.spec.has_task(job, 0)) return facts_.spec.address(job, 0);
  }
  return {};
}

std::optional<int> ClusterResolver::num_accelerators() const {
  if (!facts_.gpus) return {};
  return static_cast<int>(facts_.gpus->size());
}

}  // namespace cohort
