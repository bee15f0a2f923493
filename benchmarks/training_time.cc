#include "benchmarks/training_time.h"

#include <algorithm>
#include <limits>

namespace cohort::benchmarks {
namespace {

// Of an attempt after which training went on with step `made_again`.
void add(const JobAttempt& attempt, int64_t made_again, TimeSpent& spent) {
  double last = attempt.started;
  for (const StepTime& step : attempt.steps) {
    (&step == &attempt.steps.front() ? spent.starting : spent.between) += step.begin - last;
    const bool is_kept = step.step < made_again;
    (is_kept ? spent.kept : spent.lost) += step.end - step.begin;
    if (!is_kept) ++spent.steps_lost;
    last = step.end;
  }
  (attempt.steps.empty() ? spent.starting : spent.lost) += attempt.failed - last;
  spent.ending += attempt.ended - attempt.failed;
}

}  // namespace

TimeSpent time_spent(const std::vector<JobAttempt>& attempts) {
  TimeSpent spent;
  int64_t made_again = std::numeric_limits<int64_t>::max();  // by the attempts behind this one
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    add(*attempt, made_again, spent);
    if (!attempt->steps.empty()) made_again = std::min(made_again, attempt->steps.front().step);
  }
  return spent;
}

}  // namespace cohort::benchmarks
