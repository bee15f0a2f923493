#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/device/timed_stream.h"
#include "core/graph/graph.h"
#include "core/runtime/profiler.h"

namespace cohort {

// The times of one step's kernels on a device with streams, as the device takes them: the host is
// ahead of it. Times begin when a kernel's turn comes and include its launch where the device has
// nothing else to do.
class DeviceTimes {
 public:
  // Of kernels on `computation`, and of what AllReduceStart starts on `communication`, if there is
  // such a stream. Waits for `computation`.
  DeviceTimes(Stream& computation, Stream* communication);

  // Before and after a node's kernel is handed over.
  void start(const Node& node);
  void stop();
  // Waits for `communication`; `computation` has been synchronised. Tells the active profiler, a
  // row for each stream.
  void tell(int replica) const;

 private:
  struct Marks {
    explicit Marks(Stream& stream);
    std::unique_ptr<StreamMark> begin, end;
  };
  struct TimedKernel {
    const Node* node;
    Marks computation;
    std::optional<Marks> communication;
  };

  Stream& computation_;
  Stream* const communication_;
  const std::unique_ptr<StreamMark> zero_;
  Profiler::Clock::time_point zero_time_;  // of zero_, by the host's clock
  std::vector<TimedKernel> kernels_;
};

}  // namespace cohort
