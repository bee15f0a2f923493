#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/distribute/strategy.h"
#include "strategies/replica_threads.h"

namespace cohort {

// The devices of these names; none means every logical CPU. Duplicates are kInvalidArgument,
// devices that do not exist kNotFound; `strategy` is named in the message.
std::vector<Device> resolve_devices(std::string_view strategy,
                                    const std::vector<std::string>& names);

// The replicas of a strategy in this process: a thread and a communicator for each device. What
// strategies whose replicas are in step with each other are made of.
class LocalReplicas {
 public:
  // Null chooses how to combine values by device.
  LocalReplicas(std::vector<Device> devices, std::shared_ptr<CrossDeviceOps> cross_device_ops,
                const CommunicationOptions& communication);

  const std::vector<Device>& devices() const { return devices_; }
  int count() const { return static_cast<int>(devices_.size()); }
  CrossDeviceOps& cross_device_ops() const { return *cross_device_ops_; }

  // What Strategy::reduce_gradients promises.
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value& when) const;
  // What Strategy::run_replicas promises.
  PerReplica<std::vector<Tensor>> run(const Strategy& strategy, const Function& function,
                                      const PerReplica<std::vector<Tensor>>& inputs,
                                      const ReplicaGroup& group, const RunOptions& options);

 private:
  // Anew, because an aborted group stays broken.
  void connect();

  std::vector<Device> devices_;
  std::shared_ptr<CrossDeviceOps> cross_device_ops_;
  CommunicationOptions communication_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // none where there is one replica
  ReplicaThreads threads_;
};

}  // namespace cohort
