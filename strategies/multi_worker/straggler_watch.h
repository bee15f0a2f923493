#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cohort {

// Finds workers that take much longer than the others for something, such as to compute, step after
// step: in a synchronous step, all wait for the slowest one. A pure decision.
class StragglerWatch {
 public:
  // A worker is slow in a step in which it takes `kFactor` times as long as the median worker, and
  // `kLeast` longer; it is named in the `kSteps`-th such step in a row.
  static constexpr double kFactor = 2;
  static constexpr std::chrono::milliseconds kLeast{10};
  static constexpr int kSteps = 10;

  // The time that each worker has taken in a step, by rank. A worker to be named now, which is
  // named once until it has caught up.
  struct Straggler {
    int worker;
    std::chrono::nanoseconds own, median;
  };
  std::optional<Straggler> add_step(std::span<const std::chrono::nanoseconds> times);

 private:
  std::vector<int> slow_steps_;  // in a row, by rank
};

}  // namespace cohort
