#pragma once

#include <cstdint>
#include <vector>

// Where the time of training went that was broken off and started again from what it had saved.
namespace cohort::benchmarks {

// All times are seconds of one clock.
struct StepTime {
  int64_t step = 0;
  double begin = 0, end = 0;
};

// From one start of a job to what ended it.
struct JobAttempt {
  double started = 0;           // from which on it counts
  std::vector<StepTime> steps;  // those that were completed, in their order
  double failed = 0;            // when something went wrong; of the last attempt its end
  double ended = 0;             // when all tasks had ended, so that they could be started again
};

// Parts of the time, without a rest.
struct TimeSpent {
  double kept = 0;     // steps whose results were kept
  double lost = 0;     // steps that had to be made again, whole ones and those that were broken off
  double between = 0;  // what went on between steps, such as saves
  double ending = 0;   // from what went wrong to the end of all tasks
  double starting = 0;     // until the first step began, with the launcher's pause
  int64_t steps_lost = 0;  // whole ones

  double total() const { return kept + lost + between + ending + starting; }
  // The effective training time ratio: the share that went into steps that counted.
  double effective() const { return kept / total(); }
};

// A step counts where no later attempt has made it, or one before it, again.
TimeSpent time_spent(const std::vector<JobAttempt>& attempts);

}  // namespace cohort::benchmarks
