#pragma once

#include <chrono>
#include <string>

namespace cohort::launcher {

// How long to wait before tasks are started again, so that a failure that comes back at once does
// not keep hosts, and what tasks talk to, busy with starting. No clock of its own.
class RestartPause {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // What lasted so long was not ended by what ends each attempt.
  static constexpr Duration kLongAttempt = std::chrono::seconds(30);

  // The next one, after an attempt that `lasted` so long. After less than that, the second restart
  // is 1 s or more from the start of the attempt before, those that follow 2, 4, 8, 16 and 30 s.
  // The first is at once, and so are all others.
  Duration after(Duration lasted);

 private:
  Duration distance_{};  // of the next start from the one before
};

// "restarting all tasks in 2 s (restart 2 of 3)".
std::string restarting(RestartPause::Duration pause, int restart, int allowed);
// The same where nodes have come or gone, which is no failure.
std::string restarting_with_other_nodes(RestartPause::Duration pause);
// Of one task: "started again in 2 s, 2 of 3".
std::string started_again(RestartPause::Duration pause, int restart, int allowed);

}  // namespace cohort::launcher
