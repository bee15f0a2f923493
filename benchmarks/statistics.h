#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace cohort::benchmarks {

// The upper median; `values` must not be empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline double microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

inline double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

inline double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return milliseconds(std::chrono::steady_clock::now() - begin);
}

}  // namespace cohort::benchmarks
