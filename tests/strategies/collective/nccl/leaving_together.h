#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/collective/device_collectives.h"
#include "core/collective/forwarding_communicator.h"

namespace cohort::testing {

// Where ranks that leave their group wait for the others. Thread-safe.
class Departure {
 public:
  explicit Departure(int ranks) : missing_(ranks) {}

  // Returns when all ranks have come here, and at the deadline where one does not.
  void leave() {
    std::unique_lock lock(mutex_);
    --missing_;
    changed_.notify_all();
    const bool all_came = changed_.wait_for(lock, kDeadline, [&] { return missing_ == 0; });
    gave_up_ = gave_up_ || !all_came;
  }
  // Whether all have come, and each has seen it.
  bool was_together() const {
    const std::lock_guard lock(mutex_);
    return missing_ == 0 && !gave_up_;
  }

 private:
  static constexpr std::chrono::seconds kDeadline{10};
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int missing_;
  bool gave_up_ = false;
};

// Collectives that do nothing, and end as NCCL's do.
class LeavesTogether final : public DeviceCollectives {
 public:
  explicit LeavesTogether(Departure& departure) : departure_(departure) {}
  ~LeavesTogether() override { departure_.leave(); }
  bool can_run(const Call&) const override { return false; }
  void start(const Call&, Stream&, const void*) override {}
  void wait(const void*, Stream&) override {}
  void check() override {}
  void abort(const Error&) override {}

 private:
  Departure& departure_;
};

class WithDeparture final : public ForwardingCommunicator {
 public:
  WithDeparture(std::unique_ptr<Communicator> inner, Departure& departure)
      : ForwardingCommunicator(std::move(inner)), device_(departure) {}
  DeviceCollectives* on_device() override { return &device_; }

 private:
  LeavesTogether device_;
};

// The ranks of `departure`, which are threads of this process.
inline std::vector<std::unique_ptr<Communicator>> make_leaving_together(int size,
                                                                        Departure& departure) {
  auto ranks = make_in_process_communicators(size);
  for (auto& rank : ranks) rank = std::make_unique<WithDeparture>(std::move(rank), departure);
  return ranks;
}

}  // namespace cohort::testing
