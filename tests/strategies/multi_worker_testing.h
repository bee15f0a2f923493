#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "core/device/device.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/on_workers.h"

// What tests of MultiWorkerMirroredStrategy share.
namespace cohort::testing {

// Of workers that have up to kDevices devices each.
class MultiWorkerTest : public ::testing::Test {
 protected:
  static constexpr int kDevices = 4;

  static void SetUpTestSuite() { set_logical_cpus(kDevices, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  static MultiWorkerMirroredStrategy::Options devices(int count) {
    MultiWorkerMirroredStrategy::Options options;
    for (int i = 0; i < count; ++i) options.devices.push_back(str("cpu:", i));
    return options;
  }
};

inline std::shared_ptr<Variable> scalar(const std::string& name, float value,
                                        Synchronization synchronization = Synchronization::kAuto,
                                        Aggregation aggregation = Aggregation::kNone) {
  return create_variable({.name = name,
                          .spec = {DType::kFloat32, {}},
                          .initial_value = [=] { return Tensor::scalar(value); },
                          .synchronization = synchronization,
                          .aggregation = aggregation});
}

// A number for each replica: its id in sync, from 1.
inline PerReplica<Tensor> ids(Strategy& strategy) {
  return strategy.distribute_values_from_function([](const ValueContext& context) {
    return Tensor::scalar(static_cast<float>(context.replica_id_in_sync_group + 1));
  });
}

}  // namespace cohort::testing
