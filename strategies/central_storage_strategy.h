#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/own_process.h"
#include "core/distribute/strategy.h"

namespace cohort {

class LocalReplicas;

// Synchronous training on several devices of this process with one copy of each variable
// (tf.distribute.experimental.CentralStorageStrategy): replicas read the weights from the parameter
// device, gradients are reduced bucket by bucket as under MirroredStrategy, and the variables are
// updated once. Where devices reach the parameter device's memory, each replica makes its part of
// the update, and it takes the memory of one copy, of the weights and of all that the optimizer
// keeps, however many replicas there are: as under MirroredStrategy on CPUs. Elsewhere the first
// replica alone applies the update while the others wait, and each compiled step keeps copies of
// what it uses; MirroredStrategy updates faster there. Variables that are not synchronised on write
// have a copy for each replica.
//
//   CentralStorageStrategy strategy({.compute_devices = {"cpu:0", "cpu:1"}});
class CentralStorageStrategy final : public Strategy {
 public:
  struct Options {
    // Device names, as MirroredStrategy takes them: none means every GPU, and where there are none
    // every logical CPU.
    std::vector<std::string> compute_devices = {};
    // Where the variables are; kNotFound for a device that does not exist. Empty: on the compute
    // device if there is only one, else on cpu:0.
    std::string parameter_device = {};
    // How replicas combine values; null chooses by device.
    std::shared_ptr<CrossDeviceOps> cross_device_ops = {};
    CommunicationOptions communication = {};
  };

  explicit CentralStorageStrategy(const Options& options);
  CentralStorageStrategy() : CentralStorageStrategy(Options{}) {}
  ~CentralStorageStrategy() override;

  std::string name() const override { return "CentralStorageStrategy"; }
  int num_replicas_in_sync() const override;
  const std::vector<Device>& devices() const override;
  Device parameter_device() const { return parameter_device_; }
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override;
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value& when = {}) override;
  // Nobody updates a variable before all replicas have read it, nor reads it before it is updated.
  void begin_update() override;
  void end_update() override;
  std::optional<StepWaits> waits() const override;

 protected:
  PerReplica<std::vector<Tensor>> run_replicas(const Function& function,
                                               const PerReplica<std::vector<Tensor>>& inputs,
                                               const ReplicaGroup& group,
                                               const RunOptions& options) override;
  bool is_home_of(const Variable& variable) const override;
  CrossDeviceOps& cross_device_ops() override;

 private:
  OwnedHere<LocalReplicas> replicas_;
  Device parameter_device_;
};

}  // namespace cohort
