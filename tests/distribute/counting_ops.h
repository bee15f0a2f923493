#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/distribute/cross_device_ops.h"

namespace cohort::testing {

// Counts what it is asked for.
class Counting final : public CrossDeviceOps {
 public:
  std::string name() const override { return "Counting"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    ++groups;
    if (replicas_missing) return {};
    return SharedMemoryAllReduce()->make_communicators(devices);
  }
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& values) override {
    ++reductions;
    return CrossDeviceOps::reduce(op, values);
  }
  Tensor gather(const PerReplica<Tensor>& values, int64_t axis) override {
    ++gathers;
    return CrossDeviceOps::gather(values, axis);
  }

  int groups = 0, reductions = 0, gathers = 0;
  bool replicas_missing = false;
};

}  // namespace cohort::testing
