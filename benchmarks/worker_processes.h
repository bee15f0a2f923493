#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "strategies/cluster/launcher/reserved_port.h"

namespace cohort::benchmarks {

// Processes of the running program that are the workers of one cluster on this host, and that work
// in rounds: a worker reads a line "go" from its standard input for each round, answers with one
// line, and ends at the end of the input. To be made before the program has threads.
class WorkerProcesses {
 public:
  // Runs the program with `arguments`, `workers` times; each process finds the cluster in TF_CONFIG
  // and has `threads` OpenMP threads. kResourceExhausted.
  WorkerProcesses(const std::vector<std::string>& arguments, int workers, int64_t threads);
  // Ends the processes, by force those that have not ended after a minute and a half.
  ~WorkerProcesses();
  WorkerProcesses(WorkerProcesses&&) = default;
  WorkerProcesses& operator=(WorkerProcesses&&) = delete;

  int count() const { return static_cast<int>(processes_.size()); }
  void start_round();
  // Every worker's next line, in the order of their ranks. kAborted when a worker has ended,
  // kDeadlineExceeded when a line has not come after 10 minutes; both name the worker.
  std::vector<std::string> answers();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Process {
    pid_t id;
    std::unique_ptr<std::FILE, Close> to, from;
  };

  static Process start(const std::vector<std::string>& arguments, const std::string& tf_config,
                       int64_t threads);

  std::vector<launcher::ReservedPort> ports_;
  std::vector<Process> processes_;
};

}  // namespace cohort::benchmarks
