#pragma once

#include <chrono>
#include <cstdint>

#include "benchmarks/training_time.h"

namespace cohort::benchmarks {

struct TrainingFaultOptions {
  int workers = 3;
  std::chrono::milliseconds pace{20};  // what the computation of a step takes
  std::chrono::nanoseconds window = std::chrono::seconds(1);  // of training before and after
  // Of train_with_a_kill(): of all training that is to be done, and from one backup to the next.
  std::chrono::nanoseconds kill_interval = std::chrono::seconds(60),
                           save_interval = std::chrono::seconds(5);
};

// Who is disturbed, and how long after the first step.
struct TrainingFault {
  int worker = 0;
  std::chrono::nanoseconds after{0};
};

struct Recovery {
  double named_ms = 0;  // until all others had ended, each with an error that names the lost one
  double recovered_ms = 0;  // until the first step that had not been made before
  int64_t steps_lost = 0;
};

struct Preemption {
  double ended_ms = 0;  // until all workers had ended
  double step_ms = 0;   // a step before it
  double save_ms = 0;   // the save
  int64_t steps_lost = 0;
};

// Each starts a job of workers on this host that keep backups (BackupAndRestore), disturbs it and
// has cohort-run start it again. To be used while this process has one thread; the errors are those
// of TaskGroup, and kDataLoss where the job ends with other weights than one that nothing has
// disturbed.
//
// A worker gets a signal by which it is gone: SIGKILL, or SIGSTOP.
Recovery lose_worker(const TrainingFaultOptions& options, const TrainingFault& fault, int signal);
// A worker gets SIGTERM. kInternal where not all ask to be started again then.
Preemption preempt_worker(const TrainingFaultOptions& options, const TrainingFault& fault);
// Training that would take `kill_interval`, where a worker is killed once.
TimeSpent train_with_a_kill(const TrainingFaultOptions& options, const TrainingFault& fault);

}  // namespace cohort::benchmarks
