#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/own_process.h"
#include "core/distribute/strategy.h"
#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/collective/communication_backend.h"
#include "strategies/multi_worker/worker_link.h"

namespace cohort {

class CommonWrites;
class LocalReplicas;
class StepWatch;
class WorkerGroup;

// Synchronous training on the devices of several processes
// (tf.distribute.MultiWorkerMirroredStrategy): MirroredStrategy over all of them. Every worker runs
// the same program, and every replica has a copy of each variable; the copies stay equal bit for
// bit. Workers on the CPUs of one host have one copy together, in shared memory, where the backend
// is kAuto or kSharedMemory and they may map it. The worker of rank 0 is the chief.
//
//   MultiWorkerMirroredStrategy strategy;  // the cluster is read from the environment
//   auto scope = strategy.scope();
//
// Construction waits until all workers are there; destruction waits until all have come to it. A
// process on its own is a world of one: MirroredStrategy, without any network.
//
// Every worker makes the same calls in the same order: creates variables, runs steps, reduces,
// saves. What a step is traced to, operations and constants, has to be the same on all:
// otherwise the step after it, and every later one, is kFailedPrecondition that names two
// workers, and so is destruction after the last step, for run_main() (fail_at_exit). A worker
// that does something else is an error on all, and so are an error of one worker and the loss of
// one: everything that waits for the others then ends with that error. After an error in a step
// the next one works again, unless the step changes variables and a replica had got the first of
// what all combine: then variables could differ from now on. After such an error, and after the
// loss of a worker, nothing works, and the job is to be started again from what it has saved.
// Destruction while an exception is on its way makes the job fail for the others, also for one that
// has caught an error that all have thrown; those that end with it have it already. Where somebody
// is lost, or fails, before all have come to it, and no call has thrown that, it is an error for
// run_main() all the same.
//
// Where a scope was entered and nothing made in it, nor have the workers done anything together,
// while fit() has trained a model that was made outside any scope, the chief warns of it at the
// end: that model was made by another thread than the one in the scope, and each worker has trained
// it for itself.
//
// Assigning a variable outside replicas, or writing it in a function that no strategy runs, changes
// what this worker sees: all have to assign the same. Where there is one copy, the next step begins
// with what was assigned, by the lowest rank of those who have. A function that fails when it runs,
// as a scatter to a row that there is not, has assigned what it has written by then.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  struct Options {
    // Who takes part; null reads the environment (resolve_cluster).
    std::shared_ptr<const ClusterResolver> resolver = {};
    // Device names of this process, as MirroredStrategy takes them, who need not name any: then
    // this task's share of the host's GPUs (own_gpus), or all CPUs where it has none. Every worker
    // needs equally many.
    std::vector<std::string> devices = {};
    CommunicationOptions communication = {};
    // How workers find each other and notice who is gone.
    MembershipOptions membership = {};
    // How workers talk to each other; kAuto leaves it to COHORT_COLLECTIVE_BACKEND.
    CommunicationBackend backend = CommunicationBackend::kAuto;
    // How long one worker may wait for the others between steps: for a slow save, or for one that
    // makes fewer calls. Before a step, and in reduce and gather, no longer than
    // communication.timeout_seconds, where that is set.
    std::chrono::seconds worker_timeout{600};
    // In place of all that: see make_in_process_links().
    std::shared_ptr<WorkerLink> link = {};
  };

  // The errors of resolve_cluster() and Membership::join(); kInvalidArgument that names two workers
  // with different numbers of devices.
  explicit MultiWorkerMirroredStrategy(const Options& options);
  MultiWorkerMirroredStrategy() : MultiWorkerMirroredStrategy(Options{}) {}
  ~MultiWorkerMirroredStrategy() override;

  std::string name() const override { return "MultiWorkerMirroredStrategy"; }
  int num_replicas_in_sync() const override;
  const std::vector<Device>& devices() const override;
  int first_replica() const override;
  Workers& workers() const override;
  // How its workers reach each other, for what a program does beside it: a group for collectives
  // (collective::ProcessGroupOptions::link), values by key, barriers with a time-out. The strategy
  // leaves the job at its end. A world of one has one, too.
  std::shared_ptr<WorkerLink> link() const {
    has_lent_link_ = true;
    return link_;
  }
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override;
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value& when = {}) override;
  // As MirroredStrategy's, where all workers share variables.
  void begin_update() override;
  void end_update() override;
  std::optional<StepWaits> waits() const override;

 protected:
  PerReplica<std::vector<Tensor>> run_replicas(const Function& function,
                                               const PerReplica<std::vector<Tensor>>& inputs,
                                               const ReplicaGroup& group,
                                               const RunOptions& options) override;
  std::vector<Signature> signatures_in_sync(const Function& function,
                                            const std::vector<Signature>& local,
                                            const RunOptions& options) override;
  bool is_home_of(const Variable& variable) const override;
  CrossDeviceOps& cross_device_ops() override;

 private:
  // What is known of the functions that workers run together, with the inputs that each has.
  struct KnownInputs {
    std::vector<Signature> signatures;  // of all replicas
    bool have_same_effects = false;     // once the functions are traced, and were compared
  };

  void connect(const Options& options, std::vector<Device> devices);
  void require_same_program(const std::vector<uint64_t>& programs);
  std::vector<Signature> all_signatures(const std::string& topic,
                                        const std::vector<uint64_t>& hashes,
                                        const std::string& own);
  std::vector<Signature> exchange_signatures(const std::string& topic, const std::string& own);
  void require_same_effects(const Function& function, const Signature& inputs,
                            const ReplicaGroup& group);
  void note_program(const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
                    const ReplicaGroup& group);
  [[noreturn]] void fail_step(const Error& error, bool writes_variables);
  void warn_of_idle_scope(int64_t meetings) const;
  void end_well();
  bool all_end();
  void end_badly();

  const OwnProcess process_;
  std::shared_ptr<WorkerLink> link_;
  std::shared_ptr<WorkerGroup> group_;  // null in a world of one, as is the watch of steps
  std::shared_ptr<StepWatch> step_;
  std::shared_ptr<LocalReplicas> replicas_;
  std::shared_ptr<CommonWrites> common_writes_;  // null where workers have no memory in common
  // By what all workers say of their functions and inputs: the same on every worker, and so is
  // whether anything is new in this step, be it to one of them alone.
  std::map<std::vector<uint64_t>, KnownInputs> known_inputs_;
  KnownInputs* inputs_ = nullptr;  // of the function that is to run
  int traces_ = 0;                 // of the function that is to run, before this step
  std::string traced_;             // the name of the function that the last step traced, if it did
  uint64_t program_ = 0;           // what it traced, for the others to compare; 0 for nothing
  int exceptions_;                 // on their way when this was made
  int64_t meetings_to_start_ = 0;  // of all workers
  int64_t trainings_before_ = 0;   // of this process, without a strategy
  mutable std::atomic<bool> has_lent_link_ = false;
  FailureWatch watch_;  // last: it uses what is above
};

}  // namespace cohort
