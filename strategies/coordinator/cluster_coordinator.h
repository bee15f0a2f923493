#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/distribute/strategy.h"
#include "core/distribute/strategy_report.h"
#include "core/runtime/function.h"
#include "core/runtime/variable.h"
#include "strategies/cluster/cluster_spec.h"
#include "strategies/cluster/environment.h"
#include "strategies/coordinator/closure_arguments.h"
#include "strategies/coordinator/coordinator_options.h"  // IWYU pragma: export
#include "strategies/coordinator/per_worker.h"
#include "strategies/coordinator/remote_value.h"

namespace cohort {

// What a coordinator has done so far, and is at.
struct CoordinatorStatistics {
  uint64_t queued = 0, in_flight = 0;  // now
  uint64_t scheduling = 0;             // threads that wait in schedule() now
  uint64_t executed = 0, failed = 0, cancelled = 0;
  // To be executed again because their worker was lost: in flight, or with sums of gradients in
  // which they waited.
  uint64_t retried = 0;
  uint64_t worker_failures = 0;  // workers lost
  int workers = 0;               // that are there now
  double tracing_seconds = 0;
  double busy_seconds = 0;  // of all workers, with functions
};

// What a worker says of itself.
struct WorkerStatus {
  std::string task;
  bool present = false;
  uint64_t executed = 0;  // since its start
  uint64_t waiting = 0, functions = 0, resources = 0;
};

// Has graph functions executed by whichever worker is free:
//
//   ClusterCoordinator coordinator(strategy);                  // workers run run_worker_server()
//   auto clicks = coordinator.create_per_worker_dataset("clicks").iterate();
//   for (int i = 0; i < 1000; ++i) coordinator.schedule(step, clicks);
//   coordinator.join();
//
// A worker that is lost costs nothing but time: what it was at is executed by others, and when it
// is started again it gets back what it had been given (functions, per-worker values, datasets from
// their beginning). So a function is executed at least once, perhaps in part several times, in any
// order.
//
// A worker executes a function as Strategy::run does, by a replica on each of its devices. They are
// as many on each worker as the strategy has here, else that is kFailedPrecondition of all that is
// scheduled; without a strategy, one.
//
// Errors: the first one of a function is kept, and thrown by the next schedule(), join() or done().
// Before it is thrown, all else is stopped: nothing is being executed, and what was scheduled and
// has not been executed, or not to its end, is cancelled, so that its RemoteValue throws kCancelled
// and it has to be scheduled again. Then the coordinator is as new.
//
// join(), fetch() and fetch_per_worker() have no deadline unless they are given one: only who has
// written a function knows how long it takes, and how long all that are queued do. A worker that is
// lost or cut off holds them up for seconds, the want of any for worker_timeout, and lines say what
// does not go on (stuck_after).
//
// After an interrupt all that waits throws kCancelled, and so does schedule(); while there is a
// coordinator SIGTERM and what else CatchTermination takes for it are such (core/base/program.h).
//
// Thread-safe. The destructor drops what has not been executed, and leaves the workers running for
// the next coordinator; shut_down() ends them. Where worker:0 executes in this process, both wait
// until the function that is being executed here has ended or given up, however long that takes: it
// gives up after its present kernel, or its wait for a server or for elements that a dataset makes
// ahead.
class ClusterCoordinator {
 public:
  // For the workers of the cluster of `strategy`, a ParameterServerStrategy of the chief that is
  // not synchronous, and must stay longer than this. Workers may be started in any order, before or
  // after; they are not waited for. Functions are traced as the strategy's replicas trace them, and
  // may read and write its variables, which the workers then pull and push. What `options` leave
  // empty of job and certificates is as the strategy has it. While there is a coordinator of a
  // strategy, another one is the same: what it is asked concerns both, and the first one's options
  // count; and what would give each worker a share of a dataset, as fit() and distribute_dataset()
  // do, is kFailedPrecondition. kInvalidArgument for other strategies and for certificates.
  //
  // The chief is chief:0, or worker:0 of a cluster without one, which then executes functions too:
  // until the coordinator ends or shuts down, there is a WorkerServer of the strategy's devices at
  // its address, in this process, and the errors of that are thrown. A function that ends its
  // process there ends the coordinator. kFailedPrecondition for a cluster with neither of them.
  explicit ClusterCoordinator(Strategy& strategy, const CoordinatorOptions& options = {},
                              const Environment& environment = process_environment);
  // Without a strategy, as chief:0, for the workers of `cluster`; functions may use a
  // ServerVariable. kInvalidArgument for a cluster without workers.
  explicit ClusterCoordinator(const ClusterSpec& cluster, const CoordinatorOptions& options = {},
                              const Environment& environment = process_environment);
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  // Queues a call of `step` (Strategy::function) and returns at once; waits only while the queue is
  // full or another thread is in join(), for schedule_timeout at most. Arguments: a Tensor, number
  // or PerWorkerValues for a parameter that is a Value; a Batch or PerWorkerIterator for one that
  // is a batch. Tensors must not be changed before the call has been executed. The body is called
  // once for each signature of its arguments, here, or on another thread for the shapes of a
  // worker's batches; until join() has returned it must be safe to call. Of all functions of a
  // coordinator one body is called at a time, so these may share layers and optimizers that nobody
  // has built; what else would build them (fit, Strategy::run, Optimizer::build) has to come before
  // the first call or after join(). A body can neither schedule nor wait for workers
  // (kFailedPrecondition). Throws what it throws, and pending errors; kInvalidArgument for a
  // variable that is neither on parameter servers nor of create_per_worker_variable.
  template <typename Result, typename... Parameters, typename... Arguments>
  RemoteValue schedule(const StepFunction<Result, Parameters...>& step,
                       const Arguments&... arguments) {
    static_assert(sizeof...(Arguments) == sizeof...(Parameters),
                  "a step is scheduled with one argument for each of its parameters");
    static_assert(
        ((coordinator::ClosureArguments::is_batch<Arguments> ==
          std::is_same_v<std::remove_cvref_t<Parameters>, BatchValues>)&&...),
        "a parameter that is const BatchValues& takes a batch, a Value a tensor or number");
    return schedule(step.state(), flatten(arguments...));
  }
  // The same for a Function, of tensors, numbers and PerWorkerValues.
  template <typename... Arguments>
  RemoteValue schedule(const Function& function, const Arguments&... arguments) {
    static_assert((!coordinator::ClosureArguments::is_batch<Arguments> && ...),
                  "for batches use Strategy::function, which knows their names");
    return schedule(function, flatten(arguments...));
  }

  // Waits until all that was scheduled has been executed; with nothing scheduled, returns at once.
  // kDeadlineExceeded after `timeout`, saying who is at what, also where an error waits to be
  // thrown and something does not stop for it; kCancelled after an interrupt; else the first error.
  void join(std::optional<std::chrono::milliseconds> timeout = {});
  // Whether there is nothing to wait for. Throws pending errors, and kCancelled after an interrupt.
  bool done();

  // The results; what is no RemoteValue is returned as it is.
  std::vector<Tensor> fetch(const RemoteValue& value) const { return value.fetch(); }
  std::vector<std::vector<Tensor>> fetch(const std::vector<RemoteValue>& values) const;
  Tensor fetch(const Tensor& value) const { return value; }

  // A dataset that the workers' program has registered under `name`. Worker i of n gets pipeline i
  // of n.
  PerWorkerDataset create_per_worker_dataset(const std::string& name) const;
  // What `function`, called on every worker, returns there: one value, of each replica its own. A
  // worker that is started again calls it again, so that what it adds on servers is added again.
  // Where an optimizer has taken over a variable that it uses by then, the body is called for that,
  // on another thread: it must be safe to call for as long as there is the value.
  template <typename... Arguments>
  PerWorkerValues create_per_worker_resource(const Function& function,
                                             const Arguments&... arguments) {
    return create_resource(function, flatten(arguments...));
  }
  // A variable of which each worker has a copy of its own, which starts with the initial value,
  // also on a worker that is started again. Functions that are scheduled may read and write it; the
  // replicas of a worker have copies, kept as the options say. One that is larger than what a
  // worker takes (WorkerServerOptions::max_bytes) is kResourceExhausted of all that is scheduled.
  std::shared_ptr<Variable> create_per_worker_variable(const VariableOptions& options);
  // Of each worker, in order, as it is now; values of its replicas one after the other. Also of
  // what an optimizer of a strategy keeps on each worker apart: accumulated gradients, loss scales.
  // Waits until each has executed what it was given before. kUnavailable that names a worker which
  // is not there, or is lost meanwhile; kDeadlineExceeded after `timeout` names one that has not
  // come to it, and what it is at; kCancelled after an interrupt.
  std::vector<Tensor> fetch_per_worker(const PerWorkerValues& values,
                                       std::optional<std::chrono::milliseconds> timeout = {});
  std::vector<Tensor> fetch_per_worker(const std::shared_ptr<Variable>& variable,
                                       std::optional<std::chrono::milliseconds> timeout = {});

  int num_workers() const;
  CoordinatorStatistics statistics() const;
  // What became of all that the workers have pushed to parameter servers since the last call:
  // "staleness" (the mean), "staleness_max" and the histogram "staleness" of the updates that were
  // applied; "lost_updates", with servers that have started again. All count by shard.
  StrategyReport take_report();
  // Asks all workers that are there; those that do not answer within 10 s are not present.
  std::vector<WorkerStatus> worker_statuses();
  // Waits until `count` workers are there, all by default; kDeadlineExceeded names those that are
  // missing. kInvalidArgument for more than the cluster has. While it waits, it throws pending
  // errors, such as that of a worker with another number of devices.
  void wait_for_workers(std::optional<int> count = {},
                        std::chrono::milliseconds timeout = std::chrono::minutes(1));
  // Asks all workers to end, the job being done: for those that are away it waits up to 10 s, but
  // not after an interrupt, and lines name those that have not been asked. Then it waits up to 3 s
  // until they have ended, and for the function that is being executed in this process, without a
  // limit (see above). From then on, what would give them work is kFailedPrecondition, and so is
  // join() where something has never been executed.
  void shut_down();

 private:
  template <typename... Arguments>
  static coordinator::ClosureArguments flatten(const Arguments&... arguments) {
    coordinator::ClosureArguments flat;
    (flat.add(arguments), ...);
    return flat;
  }
  RemoteValue schedule(const std::shared_ptr<internal::StepState>& step,
                       coordinator::ClosureArguments arguments);
  RemoteValue schedule(const Function& function, coordinator::ClosureArguments arguments);
  PerWorkerValues create_resource(const Function& function,
                                  coordinator::ClosureArguments arguments);

  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cohort
