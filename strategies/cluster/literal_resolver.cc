#include "strategies/cluster/literal_resolver.h"

#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/cluster_roles.h"

namespace cohort {
namespace {

ClusterFacts literal(ClusterSpec spec, LiteralResolverOptions options) {
  if (!spec.empty() && !options.task_type.empty()) {
    validate_task(spec, options.task_type, options.task_id.value_or(0));
  }
  ClusterFacts facts{.launcher = "literal"};
  for (const std::string& job : spec.jobs()) {
    for (const int id : spec.task_ids(job)) {
      facts.facts.push_back({str(job, ":", id), spec.address(job, id).text(), "the program"});
    }
  }
  facts.spec = std::move(spec);
  facts.task_type = std::move(options.task_type);
  facts.task_id = options.task_id;
  facts.rpc_layer = std::move(options.rpc_layer);
  facts.environment = std::move(options.environment);
  return facts;
}

}  // namespace

LiteralResolver::LiteralResolver(ClusterSpec spec, LiteralResolverOptions options)
    : ClusterResolver(literal(std::move(spec), std::move(options))) {}

}  // namespace cohort
