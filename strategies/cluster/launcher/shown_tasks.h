#pragma once

#include <string>
#include <vector>

#include "strategies/cluster/launcher/task.h"

namespace cohort::launcher {

// The tasks of a job, of which there may be none.
struct JobSize {
  std::string job;
  int tasks = 0;
};

// The tasks whose lines are shown: those that are named, or whose job is, as in "worker:0,ps".
class ShownTasks {
 public:
  ShownTasks() = default;  // all
  // All where the list is "", too.
  explicit ShownTasks(const std::string& list);

  bool contains(const Task& task) const;
  // kInvalidArgument, which lists the tasks of `jobs`, for a name that is of none of them.
  void check(const std::vector<JobSize>& jobs) const;

 private:
  std::vector<std::string> names_;  // of jobs and tasks; none: all are shown
};

}  // namespace cohort::launcher
