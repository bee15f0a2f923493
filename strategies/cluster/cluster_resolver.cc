#include "strategies/cluster/cluster_resolver.h"

#include "core/base/error.h"
#include "strategies/cluster/cluster_roles.h"

namespace cohort {

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
    invalid(launcher(), " names a cluster of ", spec.num_tasks(),
            " tasks but not which of them this is");
  }
  const auto workers = spec.task_ids("worker");
  if (!workers.empty() && workers.back() != static_cast<int>(workers.size()) - 1) {
    invalid("the workers of the cluster are numbered ", spec.describe_task_ids("worker"),
            "; to train together they must be 0 to ", workers.size() - 1);
  }
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
