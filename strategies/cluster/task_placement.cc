#include "strategies/cluster/task_placement.h"

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort {

std::vector<ClusterSpec::Task> assign_jobs(const JobSizes& jobs,
                                           const std::vector<RankedTask>& ranks) {
  const int64_t size = static_cast<int64_t>(ranks.size());
  const JobSizes sizes = jobs.empty() ? JobSizes{{"worker", static_cast<int>(size)}} : jobs;
  int64_t wanted = 0;
  for (const auto& [job, tasks] : sizes) {
    if (tasks < 0) config::refuse(str("jobs.", job), str(tasks), "0 or more tasks", R"({"ps", 1})");
    wanted += tasks;
  }
  if (wanted != size) {
    config::refuse("jobs", str(wanted, " tasks in all"), str("the ", size, " that were started"),
                   str(R"({{"worker", )", size, "}}"));
  }
  std::vector<ClusterSpec::Task> tasks;
  tasks.reserve(ranks.size());
  for (const auto& [job, count] : sizes) {
    for (int index = 0; index < count; ++index) {
      const RankedTask& rank = ranks[tasks.size()];
      tasks.push_back({job, index, rank.address, rank.source});
    }
  }
  return tasks;
}

}  // namespace cohort
