#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace cohort {

// What the steps of an epoch have taken their time for, on this worker. A step is the wait for its
// batch and its run; callbacks and validation are no part of it. A step that is the first with
// batches of its shape is traced and compiled in its run, so the first epoch computes longer than
// the others. The shares add up to 1, and are 0 where there was no step.
struct StepShares {
  int64_t steps = 0;
  double seconds = 0;  // of a step, in the mean
  double input = 0;    // waiting for the batch
  // Standing still while values of other replicas, or of parameter servers, are on their way.
  // Nothing where nobody sees it (Strategy::waits): then it is a part of computing.
  std::optional<double> communication;
  // Standing still for workers that came later, by rank; empty where there is no other, or where it
  // is a part of communication, as with parameter servers.
  std::vector<double> for_worker;
  double compute = 0;  // all else

  double for_workers() const { return std::accumulate(for_worker.begin(), for_worker.end(), 0.0); }
};

}  // namespace cohort
