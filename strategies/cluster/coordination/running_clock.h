#pragma once

#include <chrono>

namespace cohort::coordination {

// Time as this process lived it: the steady clock, less the time in which nobody could look at it
// because the process was stopped or starved. A peer's silence is measured by it, so that whoever
// wakes up from a long sleep does not take all others for dead. Not synchronised.
class RunningClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // `longest_step` is the most that one reading can advance it, to be chosen well above the
  // interval at which now() is called for sure.
  explicit RunningClock(std::chrono::milliseconds longest_step,
                        Time start = std::chrono::steady_clock::now())
      : longest_step_(longest_step), last_(start) {}

  Time now(Time steady = std::chrono::steady_clock::now()) {
    last_step_ = steady - last_;
    if (last_step_ > longest_step_) lost_ += last_step_ - longest_step_;
    last_ = steady;
    return steady - lost_;
  }

  // All the time between the last two readings, of which now() may have left out some.
  std::chrono::steady_clock::duration last_step() const { return last_step_; }

 private:
  const std::chrono::milliseconds longest_step_;
  Time last_;
  std::chrono::steady_clock::duration last_step_{0}, lost_{0};
};

}  // namespace cohort::coordination
