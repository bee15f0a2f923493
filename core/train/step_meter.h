#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/distribute/strategy.h"
#include "core/train/step_shares.h"

namespace cohort {

// Adds up what the steps of an epoch take their time for.
class StepMeter {
 public:
  // When something was, and for how long steps had stood still by then.
  struct Moment {
    std::chrono::steady_clock::time_point time;
    std::optional<StepWaits> waits;
  };
  static Moment now(const Strategy& strategy) {
    return {std::chrono::steady_clock::now(), strategy.waits()};
  }

  // A step: the wait for its batch, in which workers may have waited for each other, too, and its
  // run.
  void add_input(const Moment& begin, const Moment& end);
  void add_run(const Moment& begin, const Moment& end);

  StepShares shares() const;

 private:
  // Adds a part of a step. The result is how much of it was no standing still.
  std::chrono::nanoseconds add(const Moment& begin, const Moment& end);

  int64_t steps_ = 0;
  std::chrono::nanoseconds total_{0}, input_{0}, waited_{0};
  std::vector<std::chrono::nanoseconds> for_worker_;
  bool sees_waits_ = true;
};

}  // namespace cohort
