#pragma once

#include <cstdint>
#include <string>

namespace cohort::benchmarks {

struct WorkerOptions {
  std::string model;
  int64_t batch = 0;  // rows of a global step
  int threads = 1;
  int64_t steps = 20;
};

// What one worker finds in a round. Times are in milliseconds and, but for `step` and the
// all-reduces, means over steps that a Profiler watches. Waiting for input, the agreement of the
// workers on the step, computation, moving gradients and waiting for late workers make a step up.
struct WorkerRound {
  double step = 0;       // the median, without a profiler
  double input = 0;      // in next() of the distributed dataset
  double agreement = 0;  // before the first kernel and after the last one
  double compute = 0;
  double exposed = 0;       // standing still while gradients move
  double late = 0;          // standing still while they do not: somebody is late
  double overlappable = 0;  // from the first bucket that is complete to the last one
  double small = 0;         // an all-reduce of one float; 0 for a worker alone
  double large = 0;         // of as many bytes as the gradients have
  double gradient_bytes = 0;

  // Of the parts that make a step up.
  double sum_of_parts() const { return compute + input + exposed + late + agreement; }

  std::string to_line() const;
  // kInvalidArgument for a line that is none of these.
  static WorkerRound from_line(const std::string& line);
};
// In the order in which a line has them.
inline constexpr double WorkerRound::*kRoundFields[] = {
    &WorkerRound::step,          &WorkerRound::input,   &WorkerRound::agreement,
    &WorkerRound::compute,       &WorkerRound::exposed, &WorkerRound::late,
    &WorkerRound::overlappable,  &WorkerRound::small,   &WorkerRound::large,
    &WorkerRound::gradient_bytes};

// Is a worker of the cluster that the environment describes (WorkerProcesses): says that it is
// ready, then measures a round whenever it is told to.
void run_worker(const WorkerOptions& options);

}  // namespace cohort::benchmarks
