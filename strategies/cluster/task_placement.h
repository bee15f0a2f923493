#pragma once

#include <map>
#include <string>
#include <vector>

#include "strategies/cluster/cluster_spec.h"

namespace cohort {

// How many tasks each job has: {{"ps", 1}, {"worker", 4}}.
using JobSizes = std::map<std::string, int>;

// Where the task of one rank runs.
struct RankedTask {
  Address address;
  std::string source;  // what the address was made of
};

// Gives ranks to jobs: in alphabetical order of jobs, each takes as many of the next ranks as it
// has tasks. Without jobs, all ranks are workers. kInvalidArgument when the sizes do not add up.
std::vector<ClusterSpec::Task> assign_jobs(const JobSizes& jobs,
                                           const std::vector<RankedTask>& ranks);

}  // namespace cohort
