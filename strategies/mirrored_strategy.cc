#include "strategies/mirrored_strategy.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "core/collective/communicator.h"
#include "strategies/replica_threads.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

std::vector<Device> resolve_devices(const std::vector<std::string>& names) {
  std::vector<Device> devices;
  for (const std::string& name : names) {
    const Device device = parse_device(name);
    device_threads(device);  // throws for a device that does not exist
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      invalid("MirroredStrategy: device ", device,
              " is given twice; each replica needs a device of its own");
    devices.push_back(device);
  }
  if (!devices.empty()) return devices;
  for (Device device : list_devices())
    if (device.type == DeviceType::kCpu) devices.push_back(device);
  return devices;
}

}  // namespace

struct MirroredStrategy::Impl {
  explicit Impl(std::vector<Device> d)
      : devices(std::move(d)),
        threads(static_cast<int>(devices.size())),
        communicators(make_in_process_communicators(static_cast<int>(devices.size()))) {}

  std::vector<Device> devices;
  ReplicaThreads threads;
  std::vector<std::unique_ptr<Communicator>> communicators;
};

MirroredStrategy::MirroredStrategy(const Options& options)
    : impl_(std::make_unique<Impl>(resolve_devices(options.devices))) {}

MirroredStrategy::~MirroredStrategy() = default;

int MirroredStrategy::num_replicas_in_sync() const {
  return static_cast<int>(impl_->devices.size());
}
const std::vector<Device>& MirroredStrategy::devices() const { return impl_->devices; }

std::shared_ptr<Variable> MirroredStrategy::create_variable(const VariableOptions& options) {
  return make_mirrored_variable(options, num_replicas_in_sync());
}

std::vector<Gradient> MirroredStrategy::reduce_gradients(const std::vector<Gradient>& gradients) {
  std::vector<Gradient> reduced = gradients;
  std::vector<Value> bucket;
  for (Gradient& gradient : reduced) {
    if (!gradient) continue;
    gradient = {.values = gradient.dense()};
    bucket.push_back(gradient.values);
  }
  if (bucket.empty()) return reduced;
  Node& node =
      bucket[0].graph().add("AllReduce", bucket, {{"op", static_cast<int64_t>(ReduceOp::kSum)}});
  int next = 0;
  for (Gradient& gradient : reduced)
    if (gradient) gradient.values = node.output(next++);
  return reduced;
}

PerReplica<std::vector<Tensor>> MirroredStrategy::run(const Function& function,
                                                      const PerReplica<std::vector<Tensor>>& inputs,
                                                      const RunOptions& options) {
  const size_t replicas = impl_->devices.size();
  if (inputs.size() != replicas)
    invalid(name(), " has ", replicas, " replicas, got inputs for ", inputs.size());
  PerReplica<std::vector<Tensor>> outputs(replicas);
  std::mutex mutex;
  std::optional<Error> first_error;
  const auto stop_all = [&](size_t replica, const Error& error) {
    const std::lock_guard lock(mutex);
    if (first_error) return;  // the others only report that they were stopped
    first_error = error;
    impl_->communicators[replica]->abort(error);
  };
  impl_->threads.run([&](int id) {
    const auto replica = static_cast<size_t>(id);
    try {
      const Scope inside(*this);
      const PlanOptions plan{impl_->devices[replica], id, options.precision};
      const StepInfo step{options.seed, options.step, id, static_cast<int>(replicas),
                          impl_->communicators[replica].get()};
      outputs[replica] = function.run(inputs[replica], plan, step);
    } catch (const Error& error) {
      stop_all(replica, error);
    } catch (const std::exception& error) {
      stop_all(replica, Error(Code::kInternal, error.what()));
    }
  });
  if (first_error) {
    // An aborted group stays broken; the next run starts with a new one.
    impl_->communicators = make_in_process_communicators(static_cast<int>(replicas));
    throw *first_error;
  }
  return outputs;
}

}  // namespace cohort
