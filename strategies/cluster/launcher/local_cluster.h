#pragma once

#include <optional>
#include <string>
#include <vector>

#include "strategies/cluster/launcher/environment.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/cluster/launcher/task.h"

namespace cohort::launcher {

// The tasks of a cluster on this host, the ports reserved for them, and what each is told.
class LocalCluster {
 public:
  explicit LocalCluster(const Options& options);

  // Chief, workers, parameter servers, evaluator; indices below are positions in it.
  const std::vector<Task>& tasks() const { return tasks_; }
  int num_trainers() const { return num_trainers_; }
  // A socket bound to the address of a task; none for one without an address.
  Descriptor socket(size_t task) const;
  // `base` with what task `task` has to know, as docs/cohort-run.md lists it: after `restart`
  // restarts, with its socket inherited as `socket`.
  Environment environment(size_t task, Environment base, int restart, int socket) const;

 private:
  void add(const std::string& job, int count);
  std::string tf_config(const Task& task) const;

  int max_restarts_;
  std::string job_id_;
  std::vector<Task> tasks_;
  std::vector<std::optional<ReservedPort>> ports_;
  int num_trainers_ = 0;
};

}  // namespace cohort::launcher
