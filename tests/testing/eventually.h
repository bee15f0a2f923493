#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace cohort::testing {

inline constexpr auto kPatience = std::chrono::seconds(60);

// Waits for something that other threads or processes bring about. Whether it has come about.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace cohort::testing
