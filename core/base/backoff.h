#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace cohort {

// Between two looks at what others are about to change: lets them have the core for a while, and
// then sleeps, longer each time.
class Backoff {
 public:
  // Something has changed: from the beginning.
  void reset() { begin_ = Clock::now(), sleep_ = kFirstSleep; }
  void pause() {
    if (Clock::now() - begin_ < kAwake) return std::this_thread::yield();
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, kLongestSleep);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kAwake{2000}, kFirstSleep{50}, kLongestSleep{1000};
  Clock::time_point begin_ = Clock::now();
  std::chrono::microseconds sleep_ = kFirstSleep;
};

}  // namespace cohort
