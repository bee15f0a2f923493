#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace cohort {

// Records what ran when, and writes it as a Chrome trace (chrome://tracing, Perfetto): of each
// replica one row for each kernel name, or on a GPU, whose times are the device's own, for each
// stream. At most one profiler is active at a time; while none is, plans pay one load per step.
// Thread-safe: it may end while plans run.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::string name, kind;
    int replica;
    Clock::time_point begin, end;
    std::string row;  // of the trace
  };
  // The kind of what moves between replicas, beside the kernels: where one of these waits for it,
  // or moves it, that is a part of its own time.
  static constexpr const char* kCommunication = "communication";

  // Active from construction to destruction; kFailedPrecondition when another one is. Events beyond
  // so many are left out, of which a notice tells once: a step of a large network has thousands.
  explicit Profiler(size_t max_events = 1'000'000);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  static bool is_active();  // whether there is one

  // In the active profiler; nowhere when there is none, or none any more. `name` is the node,
  // `kind` the op. Without a `row` of the trace it is the kind's.
  static void record(const std::string& name, const std::string& kind, int replica,
                     Clock::time_point begin, Clock::time_point end, const std::string& row = "");
  // What has been recorded so far, in the order of recording.
  std::vector<Event> events() const;
  // Writes the JSON file, as write_file_atomically() does. Times are of the host's clock, in
  // microseconds since "baseTimeNanoseconds" of the file, the last multiple of a million seconds,
  // so that the events of all workers' files make one trace (docs/multi-worker.md). Each replica's
  // rows are below its number, process and host.
  void write(const std::string& path) const;
  // Total time and calls of each op, the longest first, as a table for people. Percentages are of
  // the time of all kernels.
  std::string summary() const;

 private:
  static std::atomic<Profiler*> active_;
  static std::mutex mutex_;  // of the active one's events; held when it ends
  const size_t max_events_;
  bool is_full_ = false;  // an event was left out
  // The same moment by both clocks.
  const std::chrono::system_clock::time_point wall_start_ = std::chrono::system_clock::now();
  const Clock::time_point start_ = Clock::now();
  std::vector<Event> events_;
};

}  // namespace cohort
