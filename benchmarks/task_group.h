#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/task_process.h"

namespace cohort::benchmarks {

// The processes of a job that is to be disturbed, which are watched together. All end with the
// object. To be used while this process has one thread. Waiting throws kDeadlineExceeded half a
// minute after what was expected, kCancelled when this process is asked to stop, and kAborted when
// a task has ended that nobody has asked to; all say what was waited for, and what the tasks have
// printed.
class TaskGroup {
 public:
  // The same arguments as TaskProcess; the task stays until the group ends.
  TaskProcess& start(std::string name, std::function<void()> body);

  void run_for(std::chrono::nanoseconds duration);
  // `what` is for errors: "worker:1 has pushed again"; it is expected within a moment, or so long.
  void wait_until(const std::string& what, const std::function<bool()>& is_so,
                  std::chrono::nanoseconds expected = {});
  // Ends some of the tasks in good order; kAborted for one that fails to end as it should.
  void end(const std::string& what, const std::vector<TaskProcess*>& tasks);
  // For errors: what the tasks have printed for people.
  std::string notices() const;

 private:
  std::vector<std::unique_ptr<TaskProcess>> tasks_;
};

}  // namespace cohort::benchmarks
