#include "benchmarks/training_faults.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "benchmarks/statistics.h"
#include "benchmarks/training_job.h"
#include "core/base/error.h"
#include "core/base/temporary_folder.h"

namespace cohort::benchmarks {
namespace {

constexpr int kSavesInWindow = 4;
// A fault may come somewhat later than a window after the first step.
constexpr int64_t kStepsBeside = 10;

int64_t steps_in(std::chrono::nanoseconds time, const TrainingFaultOptions& options) {
  return std::max<int64_t>(1, time / options.pace);
}

TrainingJobOptions job_of(const TrainingFaultOptions& options, int64_t steps, int64_t save_freq,
                          const TemporaryFolder& backups) {
  return {.workers = options.workers,
          .restarts = 1,
          .task = {.steps = steps,
                   .pace = options.pace,
                   .backup_folder = backups.path(),
                   .save_freq = save_freq}};
}

// Of the windows before and after a fault.
TrainingJobOptions short_job_of(const TrainingFaultOptions& options,
                                const TemporaryFolder& backups) {
  const int64_t steps = steps_in(options.window, options);
  return job_of(options, 2 * steps + kStepsBeside, std::max<int64_t>(1, steps / kSavesInWindow),
                backups);
}

// That the job ends with the weights of one that nothing disturbs, which need not take its time.
void check_weights(TrainingJob& job, TrainingJobOptions options) {
  const std::string weights = job.end();
  options.restarts = 0;
  options.task.pace = {};
  options.task.backup_folder.clear();
  if (const std::string undisturbed = TrainingJob(options).end(); weights != undisturbed)
    fail(Code::kDataLoss, "the weights of a job that was started again have the check ", weights,
         ", those of one that nothing has disturbed ", undisturbed);
}

double median_step_ms(const JobAttempt& attempt) {
  std::vector<double> times;
  for (const StepTime& step : attempt.steps) times.push_back(1e3 * (step.end - step.begin));
  return median(times);
}

}  // namespace

Recovery lose_worker(const TrainingFaultOptions& options, const TrainingFault& fault, int signal) {
  const TemporaryFolder backups("cohort-faults");
  const TrainingJobOptions job_options = short_job_of(options, backups);
  TrainingJob job(job_options);
  job.train_for(fault.after);
  const Time lost = job.disturb(fault.worker, signal);
  const Time named = job.noticed();
  job.ended();
  const Time recovered = job.went_on();
  check_weights(job, job_options);
  return {.named_ms = milliseconds(named - lost),
          .recovered_ms = milliseconds(recovered - lost),
          .steps_lost = time_spent(job.attempts()).steps_lost};
}

Preemption preempt_worker(const TrainingFaultOptions& options, const TrainingFault& fault) {
  const TemporaryFolder backups("cohort-faults");
  const TrainingJobOptions job_options = short_job_of(options, backups);
  TrainingJob job(job_options);
  job.train_for(fault.after);
  const Time asked = job.disturb(fault.worker, SIGTERM);
  const Time saving = job.last_said("saving"), saved = job.last_said("failed");
  const Time ended = job.ended();
  if (const int resumable = job.ended_resumable(); resumable != options.workers)
    fail(Code::kInternal, "worker:", fault.worker, " was asked to end, and ", resumable, " of ",
         options.workers, " workers have ended so that they can be started again");
  job.went_on();
  check_weights(job, job_options);
  const std::vector<JobAttempt> attempts = job.attempts();
  return {.ended_ms = milliseconds(ended - asked),
          .step_ms = median_step_ms(attempts[0]),
          .save_ms = milliseconds(saved - saving),
          .steps_lost = time_spent(attempts).steps_lost};
}

TimeSpent train_with_a_kill(const TrainingFaultOptions& options, const TrainingFault& fault) {
  const TemporaryFolder backups("cohort-faults");
  const TrainingJobOptions job_options = job_of(options, steps_in(options.kill_interval, options),
                                                steps_in(options.save_interval, options), backups);
  TrainingJob job(job_options);
  job.train_for(fault.after);
  job.disturb(fault.worker, SIGKILL);
  job.ended();
  job.went_on();
  check_weights(job, job_options);
  return time_spent(job.attempts());
}

}  // namespace cohort::benchmarks
