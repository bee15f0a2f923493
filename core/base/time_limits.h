#pragma once

#include <chrono>

namespace cohort {

// Any time limit as it is kept: 0 at least, and at most a year, which is as good as none. Sums of
// it with the clock stay in range.
std::chrono::milliseconds clamped(std::chrono::milliseconds limit);
// The same of one in seconds, rounded up. It is a number.
std::chrono::milliseconds clamped_seconds(double limit);

}  // namespace cohort
