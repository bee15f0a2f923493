#pragma once

#include <string>
#include <vector>

#include "strategies/cluster/launcher/environment.h"
#include "strategies/cluster/launcher/node.h"
#include "strategies/cluster/launcher/node_ports.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/task.h"

namespace cohort::launcher {

// How often tasks have been started again, or may be.
struct Restarts {
  int of_all = 0;   // together
  int of_task = 0;  // alone, since all were started
};

// The tasks of one round that run on this host, and what each is told.
class LocalCluster {
 public:
  // `ports` are those of this host and outlive this object. kInvalidArgument where tasks are to be
  // started again alone and there are no parameter servers.
  LocalCluster(const Options& options, const NodePorts& ports, Round round);

  // Chief, workers, parameter servers, evaluator; indices below are positions in it.
  const std::vector<Task>& tasks() const { return tasks_; }
  // The chief and workers, who come first.
  int num_trainers() const { return num_trainers_; }
  // A socket bound to the address of a task; none for one without an address.
  net::Descriptor socket(size_t task) const;
  // `base` with what task `task` has to know, as docs/cohort-run.md lists it: with its socket
  // inherited as `socket`.
  Environment environment(size_t task, Environment base, Restarts restarts, int socket) const;

 private:
  void add(const std::string& job, int first, int count);
  std::string tf_config(const Task& task) const;

  const Restarts max_restarts_;
  const NodePorts& ports_;
  Round round_;
  std::vector<Task> tasks_;
  std::vector<int> places_;  // of each among the tasks of its job on this host
  int num_trainers_ = 0;     // on this host
  int first_rank_ = 0;       // of this host's trainers
  int world_size_ = 0;
  std::string leader_host_;  // of rank 0
  int leader_port_ = 0;
};

}  // namespace cohort::launcher
