#pragma once

#include <string>

#include "strategies/cluster/cluster_spec.h"

namespace cohort {

// What the tasks of a cluster are to each other. `job` and `index` are the task that asks. All
// functions throw kInvalidArgument for a task that validate_task() refuses.

// Refuses a job that is not chief, worker, ps or evaluator, and a task that the cluster does not
// have. The evaluator, number 0, may be missing from it. `place` is where job and index were
// written.
void validate_task(const ClusterSpec& spec, const std::string& job, int index,
                   const std::string& place = "task");

// The chief does what only one task may do: the task chief:0, or else worker:0. An evaluator is its
// own chief.
bool is_chief(const ClusterSpec& spec, const std::string& job, int index);

// How many tasks take part in the collectives of a task of `job`: chief and workers together, or 1
// for an evaluator. Parameter servers take part in none: kInvalidArgument.
int worker_count(const ClusterSpec& spec, const std::string& job);

// The place of a task among them, from 0: the chief first, then the workers.
int id_in_cluster(const ClusterSpec& spec, const std::string& job, int index);

// The task that leads the collectives: "chief:0" or "worker:0"; "" for an evaluator, an empty
// cluster, and one that has neither.
std::string collective_leader(const ClusterSpec& spec, const std::string& job, int index);

}  // namespace cohort
