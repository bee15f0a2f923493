#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace cohort::launcher {

// What the node that serves the rendezvous was told of the job.
struct JobRules {
  using Duration = std::chrono::steady_clock::duration;

  size_t min_nodes = 1, max_nodes = 1;
  int restarts = 0;
  int node_failures = 0;  // so many in a row let a node leave an elastic job; 0: none do
  Duration join_timeout{}, last_call{};
  Duration timeout{};       // from the first start on; 0: none
  std::string job_id;       // --job_id
  std::string run_id = {};  // COHORT_JOB_ID of all tasks; "": a random one
  std::vector<std::pair<std::string, std::string>> terms;  // as in Join
  std::string place;                                       // of the rendezvous, for people
};

}  // namespace cohort::launcher
