#include "strategies/local_replicas.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <set>

#include "core/base/notice.h"
#include "core/collective/device_collectives.h"
#include "core/distribute/workers.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/collective_ops.h"
#include "core/runtime/profiler.h"
#include "core/runtime/replica_group.h"
#include "core/tensor/specs_of.h"
#include "strategies/collective/flight_recorder.h"
#include "strategies/collective/nccl/device_group.h"
#include "strategies/collective/shared_card/shared_card_library.h"
#include "strategies/collective/stall_setting.h"
#include "strategies/cross_device/buckets.h"
#include "strategies/cross_device/time_limit.h"
#include "strategies/variables/central_variable.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

// What other replicas are told; `process` is where it was thrown.
Error as_error(const std::exception_ptr& thrown, const std::string& process) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.peer().empty() ? Error(error.code(), error.message(), process) : error;
  } catch (const std::exception& error) {
    const Error told = error_for_others(error).with_context("another replica failed");
    return Error(told.code(), told.message(), process);
  } catch (...) {
    return Error(Code::kAborted, "another replica failed", process);
  }
}

// Shows what a replica communicates in the trace of an active profiler.
CommunicationObserver profile(int replica) {
  return [replica](const CommunicationEvent& event) {
    if (Profiler::is_active())
      Profiler::record(str(event.kind, " of ", event.bytes, " bytes"), Profiler::kCommunication,
                       replica, event.begin, event.end);
  };
}

std::vector<std::string> replica_names(int count) {
  std::vector<std::string> names;
  for (int r = 0; r < count; ++r) names.push_back(str("replica ", r));
  return names;
}

bool has_gpu(const std::vector<Device>& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [](Device device) { return device.type == DeviceType::kGpu; });
}

// Whether these are logical GPUs of one card. Without NCCL GPUs are simulated ones, which are.
bool share_a_card(const std::vector<Device>& devices) {
  const DeviceLibrary* nccl = nccl_library();
  try {
    return std::all_of(devices.begin(), devices.end(), [&](Device device) {
      return device.type == DeviceType::kGpu &&
             (nccl == nullptr || nccl->place_of(device) == nccl->place_of(devices[0]));
    });
  } catch (const Error&) {  // a device that NCCL cannot use
    return false;
  }
}

// Once for each reason in this process.
void warn_once(const std::string& reason) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said->insert(reason).second)
    print_notice(str(
        "warning: replicas combine values through the host's memory, not by NCCL: ", reason, "\n"));
}

// Whether no device combines values by itself.
bool all_in_host_memory(const std::vector<std::unique_ptr<Communicator>>& communicators) {
  return std::all_of(communicators.begin(), communicators.end(),
                     [](const auto& communicator) { return communicator->on_device() == nullptr; });
}

}  // namespace

const GraphFunction& trace_of(const Function& function, const std::vector<Tensor>& inputs,
                              const ReplicaGroup& group) {
  return function.trace(specs_of(inputs), group);
}

bool writes_variables(const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
                      const ReplicaGroup& group) {
  try {
    const auto& nodes = trace_of(function, inputs[0], group).graph->nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [](const auto& node) { return is_write(*node); });
  } catch (const std::exception&) {
    return false;
  }
}

std::vector<Device> resolve_devices(std::string_view strategy,
                                    const std::vector<std::string>& names,
                                    DefaultDevices default_devices) {
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
  const auto add_all = [&](DeviceType type) {
    for (Device device : list_devices())
      if (device.type == type) devices.push_back(device);
  };
  if (default_devices == DefaultDevices::kGpusFirst) add_all(DeviceType::kGpu);
  if (devices.empty()) add_all(DeviceType::kCpu);
  return devices;
}

LocalReplicas::LocalReplicas(const std::vector<Device>& devices,
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
      own_cross_device_ops_(cross_device_ops_ != nullptr && replicas_in_sync == count()),
      communication_(communication),
      replicas_in_sync_(replicas_in_sync),
      process_(std::move(process)),
      threads_(static_cast<int>(devices_.size())) {
  communication_.validate();
  if (cross_device_ops_ == nullptr) cross_device_ops_ = select_cross_device_ops(devices_);
  connect();
}

LocalReplicas::~LocalReplicas() { drop_communicators(); }

void LocalReplicas::connect() {
  if (replicas_in_sync_ == 1) return;
  require_open();
  auto communicators = cross_device_ops_->make_communicators(devices_);
  if (communicators.size() != devices_.size() ||
      std::find(communicators.begin(), communicators.end(), nullptr) != communicators.end())
    invalid(cross_device_ops_->name(), "::make_communicators must return a communicator for each ",
            "of ", devices_.size(), " devices, got ", communicators.size());
  communicators = add_device_collectives(std::move(communicators));
  // Those that reach other processes have recorders and limits already.
  const bool is_local = replicas_in_sync_ == count();
  if (is_local)
    communicators = record_flights(std::move(communicators), flight_recorder_options("replicas"));
  for (auto& communicator : communicators)
    communicator->set_observer(profile(communicator->rank()));
  if (const auto limit = communication_.limit(); is_local && limit)
    communicators = with_time_limit(std::move(communicators), *limit, replica_names(count()));
  if (is_local) {
    step_ = std::make_shared<StepWatch>(count(), all_in_host_memory(communicators));
    for (int r = 0; r < count(); ++r) {
      auto& communicator = communicators[static_cast<size_t>(r)];
      communicator = step_->watch(r, std::move(communicator));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw *closed_;
    communicators_.swap(communicators);
    connected_ = true;
  }
}

// All processes come here or none does: a library is part of the program, and the options are the
// same everywhere.
std::vector<std::unique_ptr<Communicator>> LocalReplicas::add_device_collectives(
    std::vector<std::unique_ptr<Communicator>> communicators) const {
  using Implementation = CommunicationImplementation;
  const bool wanted = communication_.implementation == Implementation::kNccl ||
                      (communication_.implementation == Implementation::kAuto &&
                       (has_gpu(devices_) || replicas_in_sync_ != count()));
  if (own_cross_device_ops_ || !wanted) return communicators;
  DeviceGroup group{std::move(communicators), "this build has no NCCL"};
  DeviceGroupOptions options{.library = nccl_library(),
                             .devices = devices_,
                             .must_join = communication_.implementation == Implementation::kNccl,
                             .limit = communication_.limit(),
                             .stall = stall_warning_asked_for()};
  SharedCardLibrary shared_card(count());
  if (replicas_in_sync_ == count() && share_a_card(devices_)) options.library = &shared_card;
  if (options.library != nullptr)
    group = cohort::add_device_collectives(std::move(group.communicators), options);
  const bool expected = communication_.implementation == Implementation::kNccl || has_gpu(devices_);
  if (!group.missing.empty() && expected) warn_once(group.missing);
  return std::move(group.communicators);
}

bool LocalReplicas::is_connected() const {
  const std::lock_guard lock(mutex_);
  return replicas_in_sync_ == 1 || connected_;
}

void LocalReplicas::reconnect() {
  // An end that was asked for, and so needs no table of what ranks did last: what has failed before
  // may have been none of their operations.
  abort(Error(Code::kCancelled, "the group is made anew after a failure"));
  connect();
}

void LocalReplicas::require_open() const {
  const std::lock_guard lock(mutex_);
  if (closed_) throw *closed_;
}

void LocalReplicas::abort(const Error& error) {
  const std::lock_guard lock(mutex_);
  for (const auto& communicator : communicators_) communicator->abort(error);
  connected_ = false;
}

void LocalReplicas::drop_communicators() {
  std::vector<std::unique_ptr<Communicator>> dropped;  // ended without the lock
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(communicators_);
    connected_ = false;
  }
  end_together(std::move(dropped));
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
  options.bucket_memory = bucket_memory(replica);
  options.output_memory = output_memory_;
  return options;
}

std::function<std::shared_ptr<Buffer>(size_t)> LocalReplicas::bucket_memory(size_t replica) const {
  Communicator* const ranks = communicator(replica);
  DeviceCollectives* const device = ranks == nullptr ? nullptr : ranks->on_device();
  if (device != nullptr) return [device](size_t bytes) { return device->allocate(bytes); };
  if (devices_[replica].type == DeviceType::kGpu || replicas_in_sync_ == count()) return nullptr;
  return [ranks](size_t bytes) { return ranks->allocate(bytes); };
}

std::shared_ptr<Variable> LocalReplicas::create_variable(const VariableOptions& options) const {
  return home_ ? make_central_variable(options, *home_, devices_)
               : make_mirrored_variable(options, devices_);
}

bool LocalReplicas::is_home_of(const Variable& variable) const {
  const bool shares =
      home_ && variable.num_replicas() == count() && variable.devices() == std::vector{*home_};
  return shares || variable.devices() == devices_;
}

void LocalReplicas::meet() const {
  if (home_ && traced_group().num_replicas > 1) ops::barrier();
}

std::vector<Gradient> LocalReplicas::reduce_gradients(const std::vector<Gradient>& gradients,
                                                      const Value& when) const {
  if (replicas_in_sync_ == 1) return gradients;
  return reduce_in_buckets(gradients, communication_, when);
}

void LocalReplicas::on_replicas(const RunOptions& options, int first_replica, const Work& work) {
  // Other processes do not come now: what has failed on one of them fails here too.
  if (!is_connected() && replicas_in_sync_ == count()) connect();
  if (step_ != nullptr) step_->begin_step();
  std::mutex mutex;
  std::exception_ptr first_error;
  threads_.run([&](int id) {
    const auto replica = static_cast<size_t>(id);
    try {
      const StepInfo step{options.seed, options.step, first_replica + id, replicas_in_sync_,
                          communicator(replica)};
      work(replica, plan_options(replica, options.precision), step);
      if (step_ != nullptr) step_->end_step(id);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first_error) return;  // the others only report that they were stopped
      first_error = std::current_exception();
      abort(as_error(first_error, process_));
    }
  });
  if (step_ != nullptr) waited_ += step_->in_collectives().count();
  if (!first_error) return;
  drop_communicators();
  std::rethrow_exception(first_error);
}

PerReplica<std::vector<Tensor>> LocalReplicas::run(const Strategy& strategy,
                                                   const Function& function,
                                                   const PerReplica<std::vector<Tensor>>& inputs,
                                                   const ReplicaGroup& group,
                                                   const RunOptions& options) {
  require_open();
  PerReplica<std::vector<Tensor>> outputs(devices_.size());
  try {
    on_replicas(options, strategy.first_replica(),
                [&](size_t replica, const PlanOptions& plan, const StepInfo& step) {
                  outputs[replica] = function.run(inputs[replica], plan, step, group);
                });
  } catch (...) {
    if (step_ != nullptr && step_->has_combined() && writes_variables(function, inputs, group))
      close_after(as_error(std::current_exception(), process_));
    throw;
  }
  return outputs;
}

std::optional<StepWaits> LocalReplicas::waits() const {
  if (replicas_in_sync_ > 1 && has_gpu(devices_)) return std::nullopt;
  return StepWaits{.all = std::chrono::nanoseconds(waited_.load())};
}

void LocalReplicas::close_after(const Error& cause) {
  const Error error(cause.code(),
                    str(cause.message(), "; the step had begun to change variables, which may ",
                        "have changed in part or now differ between replicas: training has to "
                        "start again, with a new ",
                        "strategy, from what it has saved"),
                    cause.peer());
  close(error);
  throw error;
}

}  // namespace cohort
