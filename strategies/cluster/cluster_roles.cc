#include "strategies/cluster/cluster_roles.h"

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

constexpr std::string_view kExample = R"("task": {"type": "worker", "index": 0})";

void check_job(const ClusterSpec& spec, const std::string& job, const std::string& place) {
  if (!is_job_name(job)) {
    config::refuse(str(place, ".type"), quote(job), "chief, worker, ps or evaluator", kExample);
  }
  if (job == "evaluator" || spec.num_tasks(job) > 0) return;
  std::string jobs;
  for (const std::string& name : spec.jobs()) jobs += (jobs.empty() ? "" : ", ") + name;
  config::refuse(str(place, ".type"), quote(job),
                 str("a job of the cluster (", jobs.empty() ? "it is empty" : jobs, ")"), kExample);
}

void check_collective(const std::string& job, std::string_view what) {
  if (job == "ps")
    invalid("a ps task has no ", what, ": only chief, worker and evaluator have one");
}

}  // namespace

void validate_task(const ClusterSpec& spec, const std::string& job, int index,
                   const std::string& place) {
  check_job(spec, job, place);
  const bool missing_evaluator = job == "evaluator" && spec.num_tasks(job) == 0;
  if (missing_evaluator ? index == 0 : spec.has_task(job, index)) return;
  config::refuse(str(place, ".index"), str(index),
                 missing_evaluator ? "0, for there is at most one evaluator"
                                   : str("the number of a task of job ", job, " (",
                                         spec.describe_task_ids(job), ")"),
                 str(R"("task": {"type": ")", job, R"(", "index": )",
                     missing_evaluator ? 0 : spec.task_ids(job).front(), "}"));
}

bool is_chief(const ClusterSpec& spec, const std::string& job, int index) {
  validate_task(spec, job, index);
  if (job == "chief" || job == "evaluator") return true;
  return job == "worker" && index == 0 && spec.num_tasks("chief") == 0;
}

int worker_count(const ClusterSpec& spec, const std::string& job) {
  check_job(spec, job, "task");
  check_collective(job, "number of workers");
  if (job == "evaluator") return 1;
  return spec.num_tasks("chief") + spec.num_tasks("worker");
}

int id_in_cluster(const ClusterSpec& spec, const std::string& job, int index) {
  validate_task(spec, job, index);
  check_collective(job, "place among the workers");
  return job == "worker" ? spec.num_tasks("chief") + index : index;
}

std::string collective_leader(const ClusterSpec& spec, const std::string& job, int index) {
  if (spec.empty()) return "";
  validate_task(spec, job, index);
  if (job == "evaluator") return "";
  if (spec.has_task("chief", 0)) return "chief:0";
  return spec.has_task("worker", 0) ? "worker:0" : "";
}

}  // namespace cohort
