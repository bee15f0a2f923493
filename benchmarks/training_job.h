#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "benchmarks/task_group.h"
#include "benchmarks/task_process.h"
#include "benchmarks/training_task.h"
#include "benchmarks/training_time.h"

namespace cohort::benchmarks {

struct TrainingJobOptions {
  int workers = 3;
  int restarts = 0;
  TrainingTask task;
};

// Synchronous training by workers that are processes of this host, under cohort-run: to be
// disturbed once, and started again by cohort-run. All end with the object. Waiting is that of
// TaskGroup.
class TrainingJob {
 public:
  explicit TrainingJob(const TrainingJobOptions& options);

  // Returns so long after the first step.
  void train_for(std::chrono::nanoseconds duration);
  // Sends a signal to a worker, and says when.
  Time disturb(int worker, int signal);

  // What comes of that; each waits for it, in this order:
  // When the last of the other workers had ended with an error that names the disturbed one.
  // kInternal for an error that does not.
  Time noticed();
  // When the last of all workers said so.
  Time last_said(const std::string& word);
  // When all had ended, and were about to be started again.
  Time ended();
  // When the first step was made that had not been made before.
  Time went_on();

  // How many workers had ended with the wish to be started again.
  int ended_resumable() const;
  // Of the job so far, which has gone on.
  std::vector<JobAttempt> attempts() const;

  // Waits until training is over. A check of the weights, which are the same on all workers.
  // kAborted for a job that has failed.
  std::string end();

 private:
  // The first line with that word of a worker since the disturbance, which is waited for.
  TaskProcess::Line said(int worker, const std::string& word);
  // The last line with that word so far, without it: the process id in "id 4711".
  std::string last_word(int worker, const std::string& word) const;

  const TrainingJobOptions options_;
  TaskGroup tasks_;
  TaskProcess& launcher_;
  int disturbed_ = 0;
  Time disturbed_at_, ended_at_;
  size_t said_before_ = 0, notices_before_ = 0;  // the disturbance
};

}  // namespace cohort::benchmarks
