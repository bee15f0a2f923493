#include "strategies/mirrored_strategy.h"

#include "core/distribute/own_devices.h"
#include "strategies/local_replicas.h"
#include "strategies/variables/central_variable.h"

namespace cohort {

MirroredStrategy::MirroredStrategy(const Options& options)
    : replicas_(
          new LocalReplicas(resolve_devices(name(), options.devices, DefaultDevices::kGpusFirst),
                            options.cross_device_ops, options.communication)) {
  if (share_memory(devices())) replicas_->share_variables(devices()[0]);
  note_own_devices(name());
}

MirroredStrategy::~MirroredStrategy() = default;

int MirroredStrategy::num_replicas_in_sync() const { return replicas_->count(); }
const std::vector<Device>& MirroredStrategy::devices() const { return replicas_->devices(); }

std::shared_ptr<Variable> MirroredStrategy::create_variable(const VariableOptions& options) {
  return replicas_->create_variable(options);
}

std::vector<Gradient> MirroredStrategy::reduce_gradients(const std::vector<Gradient>& gradients,
                                                         const Value& when) {
  require_replica("reduce_gradients");
  return replicas_->reduce_gradients(gradients, when);
}

void MirroredStrategy::begin_update() { replicas_->meet(); }
void MirroredStrategy::end_update() { replicas_->meet(); }
std::optional<StepWaits> MirroredStrategy::waits() const { return replicas_->waits(); }

PerReplica<std::vector<Tensor>> MirroredStrategy::run_replicas(
    const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
    const ReplicaGroup& group, const RunOptions& options) {
  return replicas_->run(*this, function, inputs, group, options);
}

bool MirroredStrategy::is_home_of(const Variable& variable) const {
  return replicas_->is_home_of(variable);
}

CrossDeviceOps& MirroredStrategy::cross_device_ops() { return replicas_->cross_device_ops(); }

}  // namespace cohort
