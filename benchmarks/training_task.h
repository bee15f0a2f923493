#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// What each worker of a TrainingJob does, a process that cohort-run starts: synchronous training of
// a small model. A worker says "id NUMBER" of its process; "saving" when fit() ends of itself, also
// after an interrupt; "failed WHY" when it has thrown; and "weights CHECK" of all variables at the
// end. The chief says "began N" and "made N" of each step. A step's computation is a sleep, as in
// fault_tasks.h.
namespace cohort::benchmarks {

struct TrainingTask {
  int64_t steps = 1;                  // altogether
  std::chrono::milliseconds pace{0};  // what the computation of one takes
  std::string backup_folder;          // "": there are no backups
  int64_t save_freq = 1;              // steps from one to the next
};

// The arguments by which this program becomes such a worker.
std::vector<std::string> arguments_of(const TrainingTask& task);
bool is_training_task(int argc, char** argv);
// Of such arguments.
void run_training_task(int argc, char** argv);

}  // namespace cohort::benchmarks
