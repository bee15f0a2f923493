#include "strategies/cluster/kubernetes_resolver.h"

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

constexpr const char* kIndex = "JOB_COMPLETION_INDEX";
constexpr const char* kService = "COHORT_KUBERNETES_SERVICE";
constexpr const char* kPods = "COHORT_KUBERNETES_PODS";
constexpr const char* kPort = "COHORT_KUBERNETES_PORT";
constexpr int kDefaultPort = 8470;

// The Job's name from the host name of this pod, JOB-INDEX and perhaps a domain.
std::string job_name(const Environment& environment, int index) {
  const std::string host = config::required_text(environment, "HOSTNAME", str("train-", index));
  const std::string label = host.substr(0, host.find('.'));
  const std::string suffix = str("-", index);
  if (!label.ends_with(suffix) || label.size() == suffix.size()) {
    config::refuse("HOSTNAME", quote(host),
                   str("the Job's name and ", suffix, ", for ", kIndex, "=", index),
                   str("train-", index));
  }
  return label.substr(0, label.size() - suffix.size());
}

ClusterFacts read(const KubernetesResolverOptions& options, const Environment& environment) {
  constexpr IntegerRange kTasks{.min = 1, .max = config::kMaxTasks};
  constexpr IntegerRange kPorts{.min = 1, .max = 65535};
  const int pods =
      options.pods ? *options.pods : config::required_integer(environment, kPods, kTasks, "4");
  if (pods < 1 || pods > config::kMaxTasks) {
    config::refuse("pods", str(pods), str("an integer from 1 to ", config::kMaxTasks), "pods = 4");
  }
  const int index = config::required_integer(environment, kIndex, {.min = 0, .max = pods - 1}, "0");
  const std::string job = options.job_name ? *options.job_name : job_name(environment, index);
  const std::string service =
      options.service ? *options.service : config::required_text(environment, kService, "train");
  const int port =
      options.port
          ? *options.port
          : config::optional_integer(environment, kPort, kPorts, "8470").value_or(kDefaultPort);

  const std::string source = str(options.job_name ? "the program's job name" : "HOSTNAME", ", ",
                                 options.service ? "the program's service" : kService);
  std::vector<RankedTask> ranks;
  ranks.reserve(static_cast<size_t>(pods));
  for (int pod = 0; pod < pods; ++pod) {
    ranks.push_back({Address::of(str(job, "-", pod, ".", service), port, source), source});
  }
  const auto tasks = assign_jobs(options.jobs, ranks);
  const ClusterSpec::Task& own = tasks[static_cast<size_t>(index)];

  ClusterFacts facts{.launcher = "Kubernetes", .spec = ClusterSpec::from_tasks(tasks)};
  facts.task_type = own.job;
  facts.task_id = own.index;
  facts.rpc_layer = options.rpc_layer;
  for (const ClusterSpec::Task& task : tasks) {
    facts.facts.push_back({str(task.job, ":", task.index), task.address.text(), task.place});
  }
  facts.facts.push_back({"task", str(own.job, ":", own.index), kIndex});
  return facts;
}

}  // namespace

KubernetesResolver::KubernetesResolver(const KubernetesResolverOptions& options,
                                       const Environment& environment)
    : ClusterResolver(read(options, environment)) {}

}  // namespace cohort
