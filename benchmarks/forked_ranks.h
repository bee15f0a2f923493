#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/base/temporary_folder.h"
#include "core/collective/communicator.h"

namespace cohort::benchmarks {

// Ranks that are processes, forked from this one and joined to a group, that wait until they are
// told to reduce. To be made before this process has any other thread.
class ForkedRanks {
 public:
  struct Options {
    int ranks = 2;
    std::string backend;       // "shm", "tcp", or "two-level": shared memory in hosts, TCP between
    int hosts = 1;             // among which the ranks are divided evenly, as it were
    bool own_buffers = false;  // of the ranks, not of the communicator
    int64_t most_bytes = 0;    // that will be reduced
  };
  explicit ForkedRanks(const Options& options);
  // Ends the processes and removes what they left.
  ~ForkedRanks();
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  // Checks the numbers, then returns the microseconds of each of some in-place all-reduces of
  // float32, as rank 0 saw them; the ranks meet before each.
  std::vector<double> run(int64_t bytes, int64_t repetitions);

 private:
  struct Process {
    pid_t pid;
    int commands, results;  // pipes
  };

  void serve(int rank, int commands, int results) const;

  const Options options_;
  const TemporaryFolder folder_{"allreduce"};
  std::vector<Process> processes_;
};

// Times in-place all-reduces on one rank, which all ranks call together. `memory` has `bytes`.
std::vector<double> time_all_reduces(Communicator& communicator, float* memory, int64_t bytes,
                                     int64_t repetitions);

}  // namespace cohort::benchmarks
