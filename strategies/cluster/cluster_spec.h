#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/address.h"

namespace cohort {

// Who is in a cluster: the address of each task of each job. An immutable value; its errors are
// kInvalidArgument and name the place of the mistake.
//
//   ClusterSpec spec({{"chief", {"a:2222"}}, {"worker", {"b:2222", "c:2222"}}});
//   spec.address("worker", 1);  // c:2222
//
// The jobs are chief, worker, ps and evaluator; chief and evaluator have one task at most, and no
// address stands twice. Task numbers may have gaps, for a task that need not know all others.
class ClusterSpec {
 public:
  using Jobs = std::map<std::string, std::vector<std::string>>;
  // One task and where it was written: "TF_CONFIG.cluster.worker[1]".
  struct Task {
    std::string job;
    int index = 0;
    Address address;
    std::string place;
  };

  // No tasks: a program on its own.
  ClusterSpec() = default;
  // Addresses by job, numbered from 0.
  explicit ClusterSpec(const Jobs& jobs);
  static ClusterSpec from_tasks(const std::vector<Task>& tasks);
  // What json() writes: for each job a list of addresses, or an object from task number to address.
  static ClusterSpec from_json(std::string_view text);

  bool empty() const { return jobs_.empty(); }
  // Names of the jobs that have tasks, in alphabetical order.
  std::vector<std::string> jobs() const;
  // The numbers of a job's tasks, ascending; none for a job that is not there.
  std::vector<int> task_ids(const std::string& job) const;
  // The same in words: "0 to 4", "0, 2, 5", "none".
  std::string describe_task_ids(const std::string& job) const;
  int num_tasks(const std::string& job) const;
  // Of all jobs.
  int num_tasks() const;
  bool has_task(const std::string& job, int index) const;
  // The error says which tasks there are.
  const Address& address(const std::string& job, int index) const;

  // The same text for equal specs.
  std::string json() const;
  // What two tasks compare to find out that they were configured alike: of json() but for the
  // evaluator, which the others need not know. The same on every machine.
  uint64_t hash() const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  std::map<std::string, std::map<int, Address>> jobs_;
};

// The names that a job may have.
inline constexpr std::string_view kJobNames[] = {"chief", "worker", "ps", "evaluator"};
bool is_job_name(std::string_view name);

}  // namespace cohort
