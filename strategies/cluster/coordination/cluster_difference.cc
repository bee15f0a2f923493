#include "strategies/cluster/coordination/cluster_difference.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/error.h"

namespace cohort::coordination {
namespace {

// Some two thousand tasks. Whoever asks the leader gets it, however often.
constexpr size_t kMaxBytes = 64 << 10;

std::string place_of(const ClusterSpec& spec, const std::string& job, int task) {
  return spec.has_task(job, task) ? "at " + spec.address(job, task).text() : "missing";
}

std::optional<std::string> first_difference(const ClusterSpec& own, const ClusterSpec& leaders) {
  for (const std::string_view name : kJobNames) {
    const std::string job(name);
    const std::vector<int> own_tasks = own.task_ids(job), leaders_tasks = leaders.task_ids(job);
    std::vector<int> tasks;
    std::ranges::set_union(own_tasks, leaders_tasks, std::back_inserter(tasks));
    for (const int task : tasks) {
      const std::string here = place_of(own, job, task), there = place_of(leaders, job, task);
      if (here != there)
        return str(job, ":", task, " is ", here, " in this task's cluster, and ", there,
                   " in the leader's");
    }
  }
  return {};
}

}  // namespace

std::string told_cluster(const ClusterSpec& leaders) {
  std::string text = leaders.json();
  if (text.size() > kMaxBytes) text.clear();
  return text;
}

std::optional<std::string> cluster_difference(const ClusterSpec& own, std::string_view told) {
  if (told.size() > kMaxBytes) return {};
  try {
    // Addresses that can be read have plain letters alone, whoever has sent them.
    return first_difference(own, ClusterSpec::from_json(told));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace cohort::coordination
