#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace cohort::parameter_server {

// How many steps each worker has completed, for bounded staleness: a worker may start another step
// while it has completed at most `max_staleness` more than the slowest. A worker without a
// connection for `grace` does not count until it is back, and then goes on where the slowest is.
// Not synchronised; the time is given.
class ClockTable {
 public:
  using Time = std::chrono::steady_clock::time_point;
  ClockTable(int64_t max_staleness, int num_workers, std::chrono::milliseconds grace)
      : max_staleness_(max_staleness), num_workers_(num_workers), grace_(grace) {}

  void connected(const std::string& task);
  void disconnected(const std::string& task, Time now);
  // The worker has completed this many steps. A number below the last one stands for itself: the
  // worker has gone back to a checkpoint.
  void complete(const std::string& task, int64_t steps, Time now);
  // It takes part no longer, or never did.
  void leave(const std::string& task);
  // It is one of those that have come, whatever it is at now.
  void saw(const std::string& task) { seen_.insert(task); }

  // What the slowest has completed: 0 while workers are expected that have not come yet; nothing
  // when nobody is left.
  std::optional<int64_t> slowest(Time now) const;
  // Whether the worker may start its next step.
  bool may_start(const std::string& task, Time now) const;
  // The workers that hold this one up, for messages.
  std::string holding_up(Time now) const;

 private:
  struct Worker {
    std::optional<int64_t> completed;  // none: it is no worker, or has left
    int connections = 0;
    Time gone_since;
  };
  bool counts(const Worker& worker, Time now) const;

  const int64_t max_staleness_;
  const int num_workers_;
  const std::chrono::milliseconds grace_;
  std::map<std::string, Worker> workers_;
  int missing() const { return std::max(0, num_workers_ - static_cast<int>(seen_.size())); }
  std::set<std::string> seen_;  // workers that have completed anything, ever
};

}  // namespace cohort::parameter_server
