#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/base/temporary_folder.h"
#include "core/collective/communicator.h"

namespace cohort::benchmarks {

// In-place all-reduces of float32 by all ranks of a group, over and over.
struct Reductions {
  int64_t bytes = 0;        // in each repetition
  int64_t segments = 1;     // of about the same size, that these are cut into
  bool in_one_call = true;  // all segments; else there is a call for each
  int64_t repetitions = 0;
};

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

  // Checks the numbers, then returns the microseconds of each repetition, as rank 0 saw them; the
  // ranks meet before each.
  std::vector<double> run(const Reductions& reductions);

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

// The same on one rank, which all ranks call together. `memory` has as many bytes.
std::vector<double> time_all_reduces(Communicator& communicator, float* memory,
                                     const Reductions& reductions);

}  // namespace cohort::benchmarks
