#include "strategies/local_replicas.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "core/runtime/profiler.h"
#include "strategies/cross_device/buckets.h"
#include "strategies/cross_device/time_limit.h"

namespace cohort {
namespace {

Error as_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(Code::kAborted, str("another replica failed: ", error.what()));
  } catch (...) {
    return Error(Code::kAborted, "another replica failed");
  }
}

// Shows what a replica communicates in the trace of an active profiler.
CommunicationObserver profile(int replica) {
  return [replica](const CommunicationEvent& event) {
    if (Profiler* profiler = Profiler::active())
      profiler->record(str(event.kind, " of ", event.bytes, " bytes"), "communication", replica,
                       event.begin, event.end);
  };
}

}  // namespace

std::vector<Device> resolve_devices(std::string_view strategy,
                                    const std::vector<std::string>& names) {
  std::vector<Device> devices;
  for (const std::string& name : names) {
    const Device device = parse_device(name);
    device_threads(device);  // throws for a device that does not exist
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      invalid(strategy, ": device ", device,
              " is given twice; each replica needs a device of its own");
    devices.push_back(device);
  }
  if (!devices.empty()) return devices;
  for (Device device : list_devices())
    if (device.type == DeviceType::kCpu) devices.push_back(device);
  return devices;
}

LocalReplicas::LocalReplicas(std::vector<Device> devices,
                             std::shared_ptr<CrossDeviceOps> cross_device_ops,
                             const CommunicationOptions& communication)
    : devices_(std::move(devices)),
      cross_device_ops_(std::move(cross_device_ops)),
      communication_(communication),
      threads_(static_cast<int>(devices_.size())) {
  communication_.validate();
  if (cross_device_ops_ == nullptr)
    cross_device_ops_ = select_cross_device_ops(devices_, communication_.implementation);
  connect();
}

void LocalReplicas::connect() {
  if (count() == 1) return;
  auto communicators = cross_device_ops_->make_communicators(devices_);
  if (communicators.size() != devices_.size() ||
      std::find(communicators.begin(), communicators.end(), nullptr) != communicators.end())
    invalid(cross_device_ops_->name(), "::make_communicators must return a communicator for each ",
            "of ", devices_.size(), " devices, got ", communicators.size());
  for (auto& communicator : communicators)
    communicator->set_observer(profile(communicator->rank()));
  if (communication_.timeout_seconds)
    for (auto& communicator : communicators)
      communicator = with_time_limit(std::move(communicator), *communication_.timeout_seconds);
  communicators_ = std::move(communicators);
}

std::vector<Gradient> LocalReplicas::reduce_gradients(const std::vector<Gradient>& gradients,
                                                      const Value& when) const {
  if (count() == 1) return gradients;
  return reduce_in_buckets(gradients, communication_, when);
}

PerReplica<std::vector<Tensor>> LocalReplicas::run(const Strategy& strategy,
                                                   const Function& function,
                                                   const PerReplica<std::vector<Tensor>>& inputs,
                                                   const ReplicaGroup& group,
                                                   const RunOptions& options) {
  PerReplica<std::vector<Tensor>> outputs(devices_.size());
  std::mutex mutex;
  std::exception_ptr first_error;
  threads_.run([&](int id) {
    const auto replica = static_cast<size_t>(id);
    Communicator* communicator = communicators_.empty() ? nullptr : communicators_[replica].get();
    try {
      const PlanOptions plan{devices_[replica], id, options.precision};
      const StepInfo step{options.seed, options.step, strategy.first_replica() + id,
                          strategy.num_replicas_in_sync(), communicator};
      outputs[replica] = function.run(inputs[replica], plan, step, group);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first_error) return;  // the others only report that they were stopped
      first_error = std::current_exception();
      if (communicator != nullptr) communicator->abort(as_error(first_error));
    }
  });
  if (first_error) {
    connect();
    std::rethrow_exception(first_error);
  }
  return outputs;
}

}  // namespace cohort
