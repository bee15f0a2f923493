#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

#include "core/base/error.h"

namespace cohort {

// Where the ranks of one process hand a collective to their devices together. While CUDA loads a
// kernel or allocates, which it does late, it may keep the whole process waiting for what a card
// has under way; and a collective's kernel ends only after the other ranks have launched theirs. So
// none launches before all ranks of the process are there, and none goes on before all have
// launched. Thread-safe.
class LaunchGate {
 public:
  explicit LaunchGate(int ranks) : ranks_(ranks) {}
  LaunchGate(const LaunchGate&) = delete;
  LaunchGate& operator=(const LaunchGate&) = delete;

  // Runs `launch` between two meetings of all ranks. What it throws closes the gate, and so does
  // waiting for longer than `limit` (kDeadlineExceeded, with `what` is to be launched); for ever
  // without one. Throws what the gate was closed with.
  void pass(std::string_view what, std::optional<std::chrono::milliseconds> limit,
            const std::function<void()>& launch);
  // Ranks that wait, and all that come later, fail with `error`. The first one given wins.
  void close(const Error& error);

 private:
  void meet(std::string_view what, std::optional<std::chrono::milliseconds> limit);

  const int ranks_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int waiting_ = 0;
  int64_t meetings_ = 0;  // that are over
  std::optional<Error> closed_;
};

}  // namespace cohort
