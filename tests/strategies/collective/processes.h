#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "core/base/temporary_folder.h"

namespace cohort::testing {

// The processes of a group, each a rank_process that runs a scenario. They are killed, and what
// they left is removed, when this goes.
class Processes {
 public:
  struct Options {
    std::string scenario;
    int processes = 2, ranks_per_process = 1;
    int limit_ms = 0;   // none
    std::string hosts;  // a letter for the host of each process; none where all share memory
    // What one process may not do: "memory" (have much of it that others can map), "rights" (more
    // than any program may).
    std::string denial = {};
    int denied_process = 0;
  };
  explicit Processes(const Options& options);
  ~Processes();

  pid_t pid(int process) const { return pids_[static_cast<size_t>(process)]; }
  // Returns when a process has printed some text; a failure after a long time.
  void await_output(int process, const std::string& text);
  // Waits for a process and returns its exit status, or -1 when a signal ended it or it hangs.
  int wait(int process);
  // All that a process has printed.
  std::string output(int process) const;

 private:
  std::string file(int process) const;

  const TemporaryFolder folder_{"group"};
  std::vector<pid_t> pids_;  // 0 for those that have been waited for
};

}  // namespace cohort::testing
