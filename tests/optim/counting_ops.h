#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/collective/forwarding_communicator.h"
#include "core/distribute/cross_device_ops.h"

namespace cohort::testing {

// Combines values in memory, and counts how much.
class CountingOps final : public CrossDeviceOps {
 public:
  std::string name() const override { return "CountingOps"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    auto group = make_in_process_communicators(static_cast<int>(devices.size()));
    for (auto& communicator : group)
      communicator = std::make_unique<Counter>(std::move(communicator), *this);
    return group;
  }
  // Since the last time, of one rank.
  int64_t take_bytes() { return bytes_.exchange(0); }

 private:
  class Counter final : public ForwardingCommunicator {
   public:
    Counter(std::unique_ptr<Communicator> inner, CountingOps& counts)
        : ForwardingCommunicator(std::move(inner)), counts_(counts) {}
    void run(const Call& call) override {
      count(call);
      inner().run(call);
    }
    int64_t start(const Call& call) override {
      count(call);
      return inner().start(call);
    }

   private:
    void count(const Call& call) {
      if (rank() == 0) counts_.bytes_ += bytes_of(call);
    }

    CountingOps& counts_;
  };

  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace cohort::testing
