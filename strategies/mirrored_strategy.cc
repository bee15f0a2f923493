#include "strategies/mirrored_strategy.h"

#include "strategies/local_replicas.h"
#include "strategies/variables/central_variable.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort {

MirroredStrategy::MirroredStrategy(const Options& options)
    : replicas_(std::make_unique<LocalReplicas>(
          resolve_devices(name(), options.devices, DefaultDevices::kGpusFirst),
          options.cross_device_ops, options.communication)),
      one_copy_(share_memory(devices())) {}

MirroredStrategy::~MirroredStrategy() = default;

int MirroredStrategy::num_replicas_in_sync() const { return replicas_->count(); }
const std::vector<Device>& MirroredStrategy::devices() const { return replicas_->devices(); }

std::shared_ptr<Variable> MirroredStrategy::create_variable(const VariableOptions& options) {
  return one_copy_ ? make_central_variable(options, devices()[0], devices())
                   : make_mirrored_variable(options, devices());
}

std::vector<Gradient> MirroredStrategy::reduce_gradients(const std::vector<Gradient>& gradients,
                                                         const Value& when) {
  require_replica("reduce_gradients");
  return replicas_->reduce_gradients(gradients, when);
}

void MirroredStrategy::begin_update() {
  if (one_copy_) replicas_->meet();
}

void MirroredStrategy::end_update() {
  if (one_copy_) replicas_->meet();
}

PerReplica<std::vector<Tensor>> MirroredStrategy::run_replicas(
    const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
    const ReplicaGroup& group, const RunOptions& options) {
  return replicas_->run(*this, function, inputs, group, options);
}

bool MirroredStrategy::is_home_of(const Variable& variable) const {
  return (one_copy_ && variable.num_replicas() == replicas_->count() &&
          variable.devices() == std::vector{devices()[0]}) ||
         Strategy::is_home_of(variable);
}

CrossDeviceOps& MirroredStrategy::cross_device_ops() { return replicas_->cross_device_ops(); }

}  // namespace cohort
