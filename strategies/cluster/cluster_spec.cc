#include "strategies/cluster/cluster_spec.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/fnv1a.h"
#include "strategies/cluster/json_document.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

using config::Json;
using config::refuse;

std::vector<ClusterSpec::Task> numbered(const ClusterSpec::Jobs& jobs) {
  std::vector<ClusterSpec::Task> tasks;
  for (const auto& [job, addresses] : jobs) {
    for (const std::string& address : addresses) {
      const int index = static_cast<int>(&address - addresses.data());
      const std::string place = str(config::path_of("cluster", job), "[", index, "]");
      tasks.push_back({job, index, Address::parse(address, place), place});
    }
  }
  return tasks;
}

void check_job(const ClusterSpec::Task& task) {
  if (!is_job_name(task.job)) {
    refuse(task.place, str("the job ", quote(task.job)), "chief, worker, ps or evaluator",
           R"({"worker": ["host0:2222", "host1:2222"]})");
  }
  if (task.index < 0 || task.index >= config::kMaxTasks) {
    refuse(task.place, str("task ", task.index), str("a number from 0 to ", config::kMaxTasks - 1),
           R"({"worker": {"0": "host0:2222"}})");
  }
  if (task.index > 0 && (task.job == "chief" || task.job == "evaluator")) {
    refuse(task.place, str("the ", task.job, " ", task.index),
           str("at most one ", task.job, ", which is number 0"),
           str(R"({")", task.job, R"(": ["host0:2222"]})"));
  }
}

// Names with and without a dot at the end are of one host. The place is where it was written.
Address without_last_dot(const ClusterSpec::Task& task) {
  const std::string& host = task.address.host();
  if (!host.ends_with('.')) return task.address;
  return Address::of(host.substr(0, host.size() - 1), task.address.port(), task.place);
}

Json to_json(const std::map<int, Address>& tasks) {
  const bool dense = tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
  Json json = dense ? Json::array() : Json::object();
  for (const auto& [index, address] : tasks) {
    if (dense) {
      json.push_back(address.text());
    } else {
      json[std::to_string(index)] = address.text();
    }
  }
  return json;
}

}  // namespace

bool is_job_name(std::string_view name) {
  return std::find(std::begin(kJobNames), std::end(kJobNames), name) != std::end(kJobNames);
}

ClusterSpec::ClusterSpec(const Jobs& jobs) : ClusterSpec(from_tasks(numbered(jobs))) {}

ClusterSpec ClusterSpec::from_tasks(const std::vector<Task>& tasks) {
  ClusterSpec spec;
  std::map<Address, const std::string*> places;
  for (const Task& task : tasks) {
    check_job(task);
    const auto [place, is_new] = places.emplace(without_last_dot(task), &task.place);
    if (!is_new) {
      refuse(task.place, str(task.address.text(), ", which stands at ", *place->second, " too"),
             "another port or host for each task", R"(["host0:2222", "host0:2223"])");
    }
    if (!spec.jobs_[task.job].emplace(task.index, task.address).second) {
      refuse(task.place, str(task.job, ":", task.index, " for the second time"), "each task once",
             R"({"worker": {"0": "host0:2222", "1": "host1:2222"}})");
    }
  }
  return spec;
}

ClusterSpec ClusterSpec::from_json(std::string_view text) {
  return from_tasks(config::parse_tasks(config::parse_object(text, "cluster"), "cluster"));
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

std::vector<int> ClusterSpec::task_ids(const std::string& job) const {
  std::vector<int> ids;
  if (const auto found = jobs_.find(job); found != jobs_.end()) {
    for (const auto& [index, address] : found->second) ids.push_back(index);
  }
  return ids;
}

std::string ClusterSpec::describe_task_ids(const std::string& job) const {
  constexpr size_t kShown = 8;
  const auto ids = task_ids(job);
  if (ids.empty()) return "none";
  if (ids.size() == 1) return str(ids.front());
  if (ids.back() - ids.front() + 1 == static_cast<int>(ids.size())) {
    return str(ids.front(), " to ", ids.back());
  }
  return comma_separated(ids, std::identity(), kShown);
}

int ClusterSpec::num_tasks(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : static_cast<int>(found->second.size());
}

int ClusterSpec::num_tasks() const {
  int count = 0;
  for (const auto& [job, tasks] : jobs_) count += static_cast<int>(tasks.size());
  return count;
}

bool ClusterSpec::has_task(const std::string& job, int index) const {
  const auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.contains(index);
}

const Address& ClusterSpec::address(const std::string& job, int index) const {
  if (has_task(job, index)) return jobs_.at(job).at(index);
  invalid("the cluster has no task ", job, ":", index, "; its ", job, " tasks are ",
          describe_task_ids(job));
}

std::string ClusterSpec::json() const {
  Json json = Json::object();
  for (const auto& [job, tasks] : jobs_) json[job] = to_json(tasks);
  return json.dump();
}

uint64_t ClusterSpec::hash() const {
  ClusterSpec compared = *this;
  compared.jobs_.erase("evaluator");
  return fnv1a(compared.json());
}

}  // namespace cohort
