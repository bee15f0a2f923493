#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/train/step_shares.h"

namespace cohort {

// Finds the first epoch of a training whose steps wait much, for their batches or for
// communication. A pure decision.
class BottleneckWatch {
 public:
  static constexpr double kShare = 0.3;  // of the time of steps
  static constexpr double kSeconds = 1;  // less, over the epoch, is not worth a word

  // After `epoch`, from 0: a line for people, which says what to do. Once in its life.
  std::optional<std::string> add_epoch(int64_t epoch, const StepShares& shares);

 private:
  bool has_said_ = false;
};

}  // namespace cohort
