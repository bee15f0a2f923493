#include "strategies/central_storage_strategy.h"

#include "core/distribute/own_devices.h"
#include "strategies/local_replicas.h"

namespace cohort {
namespace {

Device resolve_parameter_device(const std::string& given, const std::vector<Device>& compute) {
  if (given.empty()) return compute.size() == 1 ? compute[0] : Device{};
  const Device device = parse_device(given);
  device_threads(device);  // throws for a device that does not exist
  return device;
}

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(const Options& options)
    : replicas_(new LocalReplicas(
          resolve_devices(name(), options.compute_devices, DefaultDevices::kGpusFirst),
          options.cross_device_ops, options.communication)),
      parameter_device_(resolve_parameter_device(options.parameter_device, devices())) {
  replicas_->share_variables(parameter_device_);
  note_own_devices(name());
}

CentralStorageStrategy::~CentralStorageStrategy() = default;

int CentralStorageStrategy::num_replicas_in_sync() const { return replicas_->count(); }
const std::vector<Device>& CentralStorageStrategy::devices() const { return replicas_->devices(); }

std::shared_ptr<Variable> CentralStorageStrategy::create_variable(const VariableOptions& options) {
  return replicas_->create_variable(options);
}

std::vector<Gradient> CentralStorageStrategy::reduce_gradients(
    const std::vector<Gradient>& gradients, const Value& when) {
  require_replica("reduce_gradients");
  return replicas_->reduce_gradients(gradients, when);
}

void CentralStorageStrategy::begin_update() { replicas_->meet(); }
void CentralStorageStrategy::end_update() { replicas_->meet(); }
std::optional<StepWaits> CentralStorageStrategy::waits() const { return replicas_->waits(); }

PerReplica<std::vector<Tensor>> CentralStorageStrategy::run_replicas(
    const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
    const ReplicaGroup& group, const RunOptions& options) {
  return replicas_->run(*this, function, inputs, group, options);
}

bool CentralStorageStrategy::is_home_of(const Variable& variable) const {
  return replicas_->is_home_of(variable);
}

CrossDeviceOps& CentralStorageStrategy::cross_device_ops() { return replicas_->cross_device_ops(); }

}  // namespace cohort
