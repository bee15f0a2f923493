#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/own_process.h"
#include "core/distribute/strategy.h"

namespace cohort {

class LocalReplicas;

// Synchronous training on several devices of this process (tf.distribute.MirroredStrategy). Every
// device has a copy of each variable and runs one replica on its own thread; gradients are summed
// over the replicas inside the step, and each replica applies the same update, so the copies stay
// equal bit for bit; between a CPU and a GPU, which round differently, up to their last bits. CPUs,
// which reach the same memory, have one copy for all: each replica gets its part of the sums and
// updates that part of every variable. What is not elementwise, as LAMB, the first replica updates;
// an assignment makes replicas wait for each other, before and after.
// Reduction goes on behind the backward pass, bucket by bucket. A step that fails before replicas
// have met changes nothing; where one fails later, variables may have changed in part, and its
// error is that of every later run.
//
//   MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
//   auto scope = strategy.scope();
//   auto model = nn::Sequential({...});
class MirroredStrategy final : public Strategy {
 public:
  struct Options {
    // Device names; none means every GPU (see set_logical_gpus), and where there are none every
    // logical CPU (see set_logical_cpus). Duplicates are kInvalidArgument, devices that do not
    // exist kNotFound.
    std::vector<std::string> devices = {};
    // How replicas combine values; null chooses by device.
    std::shared_ptr<CrossDeviceOps> cross_device_ops = {};
    CommunicationOptions communication = {};
  };

  explicit MirroredStrategy(const Options& options);
  MirroredStrategy() : MirroredStrategy(Options{}) {}
  ~MirroredStrategy() override;

  std::string name() const override { return "MirroredStrategy"; }
  int num_replicas_in_sync() const override;
  const std::vector<Device>& devices() const override;
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override;
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value& when = {}) override;
  // As CentralStorageStrategy's, where replicas share variables.
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
};

}  // namespace cohort
