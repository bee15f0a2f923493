#pragma once

#include <string>

namespace cohort::launcher {

// One process of the cluster.
struct Task {
  std::string job;  // "chief", "worker", "ps" or "evaluator"
  int index = 0;

  std::string name() const { return job + ":" + std::to_string(index); }
  // Trains, and ends by itself when training is over. The others serve or watch the trainers.
  bool is_trainer() const { return job == "chief" || job == "worker"; }
  // May be started again while the others go on, where there are parameter servers: all but whoever
  // ends the job.
  bool may_come_back() const { return job != "chief"; }
  // Has an address in the cluster.
  bool listens() const { return job != "evaluator"; }
};

}  // namespace cohort::launcher
