#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/task_placement.h"

namespace cohort {

// What is given here wins over the environment.
struct KubernetesResolverOptions {
  std::optional<std::string> job_name = {};
  std::optional<std::string> service = {};
  std::optional<int> pods = {};
  std::optional<int> port = {};
  // Tasks of each job of the cluster; pods go to them in alphabetical order. Default: all workers.
  JobSizes jobs = {};
  std::string rpc_layer = "grpc";
};

// The pods of an indexed Job (completionMode: Indexed), which find each other through a headless
// service: pod k is JOB-k.SERVICE. Reads
//
//   JOB_COMPLETION_INDEX             which pod this is; Kubernetes sets it
//   HOSTNAME                         JOB-k; Kubernetes sets it
//   COHORT_KUBERNETES_SERVICE        the service, also the pods' `subdomain`
//   COHORT_KUBERNETES_PODS           how many pods there are: `completions`
//   COHORT_KUBERNETES_PORT           the port on which each listens; 8470 by default
//
// The pods of a TFJob have a TF_CONFIG instead.
class KubernetesResolver : public ClusterResolver {
 public:
  explicit KubernetesResolver(const KubernetesResolverOptions& options = {},
                              const Environment& environment = process_environment);
};

}  // namespace cohort
