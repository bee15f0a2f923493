#include "strategies/local_replicas.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "core/runtime/profiler.h"
#include "strategies/collective/flight_recorder.h"
#include "strategies/cross_device/buckets.h"
#include "strategies/cross_device/time_limit.h"

namespace cohort {
namespace {

// What other replicas are told; `process` is where it was thrown.
Error as_error(const std::exception_ptr& thrown, const std::string& process) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.peer().empty() ? Error(error.code(), error.message(), process) : error;
  } catch (const std::exception& error) {
    return Error(Code::kAborted, str("another replica failed: ", error.what()), process);
  } catch (...) {
    return Error(Code::kAborted, "another replica failed", process);
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
    : LocalReplicas(devices, std::move(cross_device_ops), communication,
                    static_cast<int>(devices.size()), "") {}

LocalReplicas::LocalReplicas(std::vector<Device> devices,
                             std::shared_ptr<CrossDeviceOps> cross_device_ops,
                             const CommunicationOptions& communication, int replicas_in_sync,
                             std::string process)
    : devices_(std::move(devices)),
      cross_device_ops_(std::move(cross_device_ops)),
      communication_(communication),
      replicas_in_sync_(replicas_in_sync),
      process_(std::move(process)),
      threads_(static_cast<int>(devices_.size())) {
  communication_.validate();
  if (cross_device_ops_ == nullptr)
    cross_device_ops_ = select_cross_device_ops(devices_, communication_.implementation);
  connect();
}

void LocalReplicas::connect() {
  if (replicas_in_sync_ == 1) return;
  auto communicators = cross_device_ops_->make_communicators(devices_);
  if (communicators.size() != devices_.size() ||
      std::find(communicators.begin(), communicators.end(), nullptr) != communicators.end())
    invalid(cross_device_ops_->name(), "::make_communicators must return a communicator for each ",
            "of ", devices_.size(), " devices, got ", communicators.size());
  // Those that reach other processes are recorded already.
  if (replicas_in_sync_ == count())
    communicators = record_flights(std::move(communicators), flight_recorder_options("replicas"));
  for (auto& communicator : communicators)
    communicator->set_observer(profile(communicator->rank()));
  if (communication_.timeout_seconds)
    for (auto& communicator : communicators)
      communicator = with_time_limit(std::move(communicator), *communication_.timeout_seconds);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw *closed_;
    communicators_.swap(communicators);
    connected_ = true;
  }
}

bool LocalReplicas::is_connected() const {
  const std::lock_guard lock(mutex_);
  return replicas_in_sync_ == 1 || connected_;
}

void LocalReplicas::abort(const Error& error) {
  const std::lock_guard lock(mutex_);
  for (const auto& communicator : communicators_) communicator->abort(error);
  connected_ = false;
}

void LocalReplicas::close(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = error;
  }
  abort(error);
}

Communicator* LocalReplicas::communicator(size_t replica) const {
  return replicas_in_sync_ == 1 ? nullptr : communicators_[replica].get();
}

PlanOptions LocalReplicas::plan_options(size_t replica, Precision precision) const {
  PlanOptions options{devices_[replica], static_cast<int>(replica), precision};
  if (replicas_in_sync_ > count())
    options.bucket_memory = [communicator = communicator(replica)](size_t bytes) {
      return communicator->allocate(bytes);
    };
  return options;
}

std::vector<Gradient> LocalReplicas::reduce_gradients(const std::vector<Gradient>& gradients,
                                                      const Value& when) const {
  if (replicas_in_sync_ == 1) return gradients;
  return reduce_in_buckets(gradients, communication_, when);
}

PerReplica<std::vector<Tensor>> LocalReplicas::run(const Strategy& strategy,
                                                   const Function& function,
                                                   const PerReplica<std::vector<Tensor>>& inputs,
                                                   const ReplicaGroup& group,
                                                   const RunOptions& options) {
  if (!is_connected()) connect();
  PerReplica<std::vector<Tensor>> outputs(devices_.size());
  std::mutex mutex;
  std::exception_ptr first_error;
  threads_.run([&](int id) {
    const auto replica = static_cast<size_t>(id);
    try {
      const StepInfo step{options.seed, options.step, strategy.first_replica() + id,
                          replicas_in_sync_, communicator(replica)};
      outputs[replica] =
          function.run(inputs[replica], plan_options(replica, options.precision), step, group);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first_error) return;  // the others only report that they were stopped
      first_error = std::current_exception();
      abort(as_error(first_error, process_));
    }
  });
  if (first_error) {
    if (replicas_in_sync_ == count()) connect();
    std::rethrow_exception(first_error);
  }
  return outputs;
}

}  // namespace cohort
