#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/fault_tasks.h"
#include "benchmarks/task_process.h"
#include "strategies/cluster/launcher/reserved_port.h"

namespace cohort::benchmarks {

// A job with parameter servers on this host, to be disturbed: servers, workers that count, and an
// observer, each a process. All end with the object. To be used while this process has one thread.
// Waiting throws kDeadlineExceeded after half a minute, kCancelled when this process is asked to
// stop, and kAborted when a task has ended that nobody has asked to; all say what was waited for.
class FaultJob {
 public:
  // Returns when all workers train.
  explicit FaultJob(FaultJobOptions options);

  TaskProcess& worker(int index) { return *workers_.at(static_cast<size_t>(index)); }
  TaskProcess& server(int index) { return *servers_.at(static_cast<size_t>(index)); }

  void run_for(std::chrono::nanoseconds duration);
  // `what` is for errors: "worker:1 has pushed again".
  void wait_until(const std::string& what, const std::function<bool()>& is_so);
  // For one that the server has written after this call.
  void wait_for_snapshot(int server);

  // When each of the worker's pushes was acknowledged, over all of its starts.
  std::vector<Time> steps(int worker) const;
  // Acknowledged pushes of all workers.
  int64_t pushes() const;
  // When a server first printed a line with `part` in it. Waits for it.
  Time notice_of_servers(const std::string& part);

  // What the observer saw.
  struct Sight {
    Time time;
    int server = 0;
    uint64_t epoch = 0, sessions = 0;  // 0: it did not answer
  };
  // When it first saw, after `event`, what is_sign(before, now) takes for a sign of it; `before` is
  // the last answer of that server until then. Waits for it; `what` is for errors.
  Time observed(const std::string& what, Time event,
                const std::function<bool(const Sight& before, const Sight& now)>& is_sign);

  // Ends the workers in good order, looks what has been counted, and ends all others. The counter's
  // value on each server. kAborted for a task that fails to end as it should.
  std::vector<double> end();

 private:
  std::vector<TaskProcess*> tasks() const;
  void end_tasks(const std::string& what, const std::vector<TaskProcess*>& tasks);
  // For errors: what servers and workers have printed for people.
  std::string notices() const;
  std::vector<Sight> sights() const;

  const FaultJobOptions options_;
  const std::vector<launcher::ReservedPort> ports_;
  const ClusterSpec cluster_;
  std::vector<std::unique_ptr<TaskProcess>> servers_, workers_;
  std::unique_ptr<TaskProcess> observer_;
};

}  // namespace cohort::benchmarks
