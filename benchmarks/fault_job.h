#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/fault_tasks.h"
#include "benchmarks/task_group.h"
#include "benchmarks/task_process.h"
#include "strategies/cluster/launcher/reserved_port.h"

namespace cohort::benchmarks {

// A job with parameter servers on this host, to be disturbed: servers, workers that count, and an
// observer, each a process. All end with the object. Waiting is that of TaskGroup.
class FaultJob {
 public:
  // Returns when all workers train.
  explicit FaultJob(FaultJobOptions options);

  TaskProcess& worker(int index) { return *workers_.at(static_cast<size_t>(index)); }
  TaskProcess& server(int index) { return *servers_.at(static_cast<size_t>(index)); }

  void run_for(std::chrono::nanoseconds duration) { tasks_.run_for(duration); }
  void wait_until(const std::string& what, const std::function<bool()>& is_so) {
    tasks_.wait_until(what, is_so);
  }
  // For one that the server has written after this call.
  void wait_for_snapshot(int server);

  // When each of the worker's pushes was acknowledged, over all of its starts.
  std::vector<Time> steps(int worker) const;
  // Acknowledged pushes of all workers.
  int64_t pushes() const;
  // When a server first printed a line with `part` in it. Waits for it.
  Time notice_of_servers(const std::string& part);

  // When the observer first saw, after `event`, what is_sign(before, now) takes for a sign of it;
  // `before` is the last answer of that server until then. Waits for it; `what` is for errors.
  Time observed(const std::string& what, Time event,
                const std::function<bool(const Sight& before, const Sight& now)>& is_sign);

  // Ends the workers in good order, looks what has been counted, and ends all others. The counter's
  // value on each server. kAborted for a task that fails to end as it should.
  std::vector<double> end();

 private:
  const FaultJobOptions options_;
  const std::vector<launcher::ReservedPort> ports_;
  const ClusterSpec cluster_;
  TaskGroup tasks_;
  std::vector<TaskProcess*> servers_, workers_;
  TaskProcess* observer_ = nullptr;
};

}  // namespace cohort::benchmarks
