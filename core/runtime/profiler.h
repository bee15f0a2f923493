#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace cohort {

// Records what ran when, and writes it as a Chrome trace (chrome://tracing, Perfetto): one row for
// each kernel name of each replica. At most one profiler is active at a time; while none is, plans
// pay one load per step. Thread-safe.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::string name, kind;
    int replica;
    Clock::time_point begin, end;
  };

  // Active from construction to destruction; kFailedPrecondition when another one is.
  Profiler();
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  static Profiler* active();  // or null

  // `name` is the node, `kind` the op.
  void record(const std::string& name, const std::string& kind, int replica,
              Clock::time_point begin, Clock::time_point end);
  // What has been recorded so far, in the order of recording.
  std::vector<Event> events() const;
  // Writes the JSON file, aside and renamed.
  void write(const std::string& path) const;
  // Total time and calls of each op, the longest first, as a table for people.
  std::string summary() const;

 private:
  static std::atomic<Profiler*> active_;
  const Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace cohort
