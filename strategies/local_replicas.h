#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/distribute/strategy.h"
#include "strategies/multi_worker/step_watch.h"
#include "strategies/replica_threads.h"

namespace cohort {

// What a strategy's replicas run on where no device is named.
enum class DefaultDevices {
  kCpus,       // every logical CPU
  kGpusFirst,  // every GPU that this process has, and every logical CPU where it has none
};
// The devices of these names, or the default ones. Duplicates are kInvalidArgument, devices that do
// not exist kNotFound; `strategy` is named in the message.
std::vector<Device> resolve_devices(std::string_view strategy,
                                    const std::vector<std::string>& names,
                                    DefaultDevices default_devices = DefaultDevices::kCpus);

// What `function` is traced to for inputs like these.
const GraphFunction& trace_of(const Function& function, const std::vector<Tensor>& inputs,
                              const ReplicaGroup& group);
// Whether a step of these inputs that has failed has variables to change; one that could not be
// traced has changed nothing.
bool writes_variables(const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
                      const ReplicaGroup& group);

// The replicas of a strategy in this process: a thread and a communicator for each device. What
// strategies whose replicas are in step with each other are made of.
class LocalReplicas {
 public:
  // Null chooses how to combine values by device. `replicas_in_sync` are those of all processes:
  // where there are others, `cross_device_ops` makes communicators that reach them, with the time
  // limit of `communication`, and `process` is the peer at fault that they are told of for an error
  // here.
  LocalReplicas(std::vector<Device> devices, std::shared_ptr<CrossDeviceOps> cross_device_ops,
                const CommunicationOptions& communication, int replicas_in_sync,
                std::string process);
  LocalReplicas(const std::vector<Device>& devices,
                std::shared_ptr<CrossDeviceOps> cross_device_ops,
                const CommunicationOptions& communication);
  ~LocalReplicas();

  const std::vector<Device>& devices() const { return devices_; }
  int count() const { return static_cast<int>(devices_.size()); }
  int replicas_in_sync() const { return replicas_in_sync_; }
  CrossDeviceOps& cross_device_ops() const { return *cross_device_ops_; }

  // PlanOptions::output_memory of all functions that are run. Before the first one.
  using OutputMemory = decltype(PlanOptions::output_memory);
  void place_outputs(OutputMemory memory) { output_memory_ = std::move(memory); }

  // From here on all replicas, of other processes too, have one copy of each variable together, on
  // `home`. Before there are variables.
  void share_variables(Device home) { home_ = home; }
  // A variable with that one copy, or with one for each replica. Where there are no other
  // processes.
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) const;
  // What Strategy::is_home_of promises.
  bool is_home_of(const Variable& variable) const;

  // Whether there are communicators, and none has failed. The next run makes new ones otherwise,
  // but where there are other processes.
  bool is_connected() const;
  // Makes new communicators in place of what there are. Where there are other processes, all call
  // it at once, where nothing else can keep one of them from it: the others wait for it.
  void reconnect();
  // Ends a run under way, and every later one until the next connection, with `error`. From any
  // thread.
  void abort(const Error& error);
  // The same for good: there is no next connection.
  void close(const Error& error);

  // What Strategy::begin_update and end_update promise: adds to the function being traced, where
  // several replicas run it and share variables, that they wait for each other. So nobody updates a
  // variable before all have read it, nor reads it before it is updated.
  void meet() const;
  // What Strategy::reduce_gradients promises.
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value& when) const;
  // Calls `work` for every replica on its thread, all at the same time, with what each of them runs
  // a function with. An error of a replica stops the others, and the first one is thrown when all
  // have; the next call works again, where there are other processes after reconnect().
  // `first_replica` as Strategy has it.
  using Work = std::function<void(size_t replica, const PlanOptions& plan, const StepInfo& step)>;
  void on_replicas(const RunOptions& options, int first_replica, const Work& work);
  // What Strategy::run_replicas promises. Where all replicas are here and one fails when some may
  // have begun to change variables by what they have combined, the copies may differ, and the error
  // is that of every later run.
  PerReplica<std::vector<Tensor>> run(const Strategy& strategy, const Function& function,
                                      const PerReplica<std::vector<Tensor>>& inputs,
                                      const ReplicaGroup& group, const RunOptions& options);
  // What Strategy::waits promises, of replicas that are in step with none elsewhere.
  std::optional<StepWaits> waits() const;

 private:
  // Anew, because an aborted group stays broken.
  void connect();
  // Throws the error of close().
  void require_open() const;
  // Gives the communicators collectives on GPUs where they can have them, and says once where not.
  std::vector<std::unique_ptr<Communicator>> add_device_collectives(
      std::vector<std::unique_ptr<Communicator>> communicators) const;
  // Ends all, after a step that failed by `cause` and cannot be undone.
  [[noreturn]] void close_after(const Error& cause);
  Communicator* communicator(size_t replica) const;
  // Ends all at once, and returns when no started collective uses the memory of a plan any more,
  // which may end now. REQUIRES: they have been aborted, or nothing is under way.
  void drop_communicators();
  PlanOptions plan_options(size_t replica, Precision precision) const;
  // PlanOptions::bucket_memory of a replica.
  std::function<std::shared_ptr<Buffer>(size_t)> bucket_memory(size_t replica) const;

  std::vector<Device> devices_;
  std::shared_ptr<CrossDeviceOps> cross_device_ops_;
  bool own_cross_device_ops_;  // of the user's
  CommunicationOptions communication_;
  const int replicas_in_sync_;
  const std::string process_;
  OutputMemory output_memory_;
  std::optional<Device> home_;       // of the variables that replicas share; none: each has copies
  std::shared_ptr<StepWatch> step_;  // null where there are other processes, or one replica
  std::atomic<int64_t> waited_ = 0;  // in all its steps, in nanoseconds
  mutable std::mutex mutex_;         // guards what follows; a run alone changes the vector
  std::vector<std::unique_ptr<Communicator>> communicators_;  // none where there is one replica
  bool connected_ = false;
  std::optional<Error> closed_;
  ReplicaThreads threads_;
};

}  // namespace cohort
