#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace cohort::launcher {

// When to say who is waited for: 5 s after the wait has begun, then after twice as long each time,
// up to a minute. No clock of its own.
class ReportSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // One that goes on every 5 s.
  static ReportSchedule steady() {
    ReportSchedule schedule;
    schedule.longest_pause_ = schedule.pause_;
    return schedule;
  }

  // The wait begins, if it has not yet.
  void begin(Time now) {
    if (!next_) next_ = now + pause_;
  }
  // When it is to be said again; nothing before the wait begins.
  std::optional<Time> next() const { return next_; }
  // Whether it is to be said now, which then counts as said.
  bool take(Time now) {
    if (!next_ || now < *next_) return false;
    pause_ = std::min(2 * pause_, longest_pause_);
    next_ = now + pause_;
    return true;
  }

 private:
  std::chrono::seconds pause_{5}, longest_pause_{60};
  std::optional<Time> next_;
};

}  // namespace cohort::launcher
