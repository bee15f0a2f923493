#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective/communicator.h"
#include "core/device/device.h"
#include "core/distribute/cross_device_ops.h"
#include "core/distribute/input_options.h"
#include "core/distribute/per_replica.h"
#include "core/distribute/remote_updates.h"
#include "core/distribute/replica_context.h"
#include "core/distribute/step_function.h"
#include "core/distribute/step_waits.h"
#include "core/distribute/strategy_report.h"
#include "core/distribute/workers.h"
#include "core/graph/gradients.h"
#include "core/runtime/function.h"
#include "core/runtime/variable.h"

namespace cohort {

namespace data {
class Dataset;
class DistributedDataset;
}  // namespace data

// Which replica a value is made for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// How a batch of `rows` rows is divided over `replicas`: sizes differ by at most one, larger ones
// first (7 over 3 is 3, 2, 2), so some may be 0. kInvalidArgument for less than 0 rows or 1
// replica.
std::vector<int64_t> split_rows(int64_t rows, int replicas);

// Options of one Strategy::run.
struct RunOptions {
  uint64_t seed = 0;  // keys random ops, with the step and the replica
  int64_t step = 0;
  Precision precision = Precision::kFloat32;
  // By input: whether every replica of this process is given the same tensor. Where there are no
  // other workers, that is ReplicaGroup::same_input.
  std::vector<bool> same_input = {};
  // What the inputs are, in words, such as the names of a batch's tensors. Workers that step
  // together have to give the same, which is compared where it is new.
  std::string contents = {};
};

// Decides where variables live, how replicas run and how their gradients meet: the contract that
// tf.distribute.Strategy sets, over traced graphs. Model, optimizer and training code are written
// against this class and never ask which strategy it is. Entered with `scope()`; outside any scope
// the default strategy, with one replica on cpu:0, is current.
//
// Everything under "cross-replica" is kFailedPrecondition inside a replica, or any function that is
// being traced, naming what to call there. A strategy may be used from several threads; their runs
// take turns. It cannot be copied, which the compiler says: its replicas, variables and threads are
// one thing.
class Strategy {
 public:
  Strategy();
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // --- What it is

  // Makes this strategy current on this thread until the returned object is destroyed. Re-entering
  // the same strategy is allowed; entering another inside, or any inside a replica, is
  // kFailedPrecondition. The strategy has to live as long: of a temporary one there is no scope,
  // and once it has ended all that asks for the current strategy is kFailedPrecondition until the
  // scope is left.
  class Scope;
  [[nodiscard]] Scope scope() &;
  Scope scope() && = delete;

  // A name for messages: "MirroredStrategy".
  virtual std::string name() const = 0;
  // Expires with this strategy: for what refers to it and may be kept for longer.
  std::weak_ptr<const void> lifetime() const;
  // Replicas whose gradients are reduced together in a step, over all workers.
  virtual int num_replicas_in_sync() const = 0;
  // Devices of this process's replicas, in replica order.
  virtual const std::vector<Device>& devices() const = 0;
  // The replica_id_in_sync_group of the first of them.
  virtual int first_replica() const { return 0; }
  // The processes that run this strategy together, for what they do between steps.
  virtual Workers& workers() const;
  // Whether this process is the one of them that does what only one may do.
  bool is_chief() const { return workers().is_chief(); }
  // The input pipeline of this process, one for each worker.
  virtual InputContext input_context() const;

  // Until the returned object is destroyed, variables that this thread makes under this strategy
  // live where `variable` does. Under ParameterServerStrategy that is the server of its first
  // shard, and they are not cut, whatever the partitioner says; elsewhere all variables live
  // together. Of nested ones the innermost counts. kFailedPrecondition unless this strategy is
  // current; kInvalidArgument for a variable that does not live where this strategy's do.
  class Colocation;
  [[nodiscard]] Colocation colocate_vars_with(const std::shared_ptr<Variable>& variable);

  // --- Cross-replica: steps

  // A step of one's own, traced once for each input signature and run on every replica:
  //
  //   auto step = strategy.function([&](const BatchValues& batch) {
  //     auto loss = ...;  optimizer.minimize(loss, variables);  return loss;
  //   });
  //   for (const auto& batch : strategy.distribute_dataset(data)) strategy.run(step, batch);
  //
  // Parameters are Value (an argument of run that is a Tensor, a number, or a PerReplica of either)
  // or const BatchValues& (a batch of named tensors, or a PerReplica of them), and not auto; the
  // result is Value, std::vector<Value> or void. A number keeps its type, so that a double is
  // float64, which no op mixes with float32: 0.5F is float32.
  template <typename F>
  auto function(F body, std::string name = "step",
                Precision precision = Precision::kFloat32) const {
    static_assert(internal::Arity<F>::value >= 0,
                  "Strategy::function() takes a lambda, or a pointer to a function, whose "
                  "parameters are Values or const BatchValues&, none of them auto");
    if constexpr (internal::Arity<F>::value >= 0)
      return StepFunction(std::function(std::move(body)), std::move(name), precision);
  }
  // Runs `step` on every replica at the same time, with its component of each per-replica argument
  // and every other argument as it is: a whole batch is divided by split_batch first. Returns a
  // PerReplica<Tensor> where the body returns a Value, and a vector of them where it returns
  // several. What the body throws arrives as it was thrown. Random ops are keyed by global_seed()
  // and the number of runs of `step` so far, which StepFunction::continue_at sets. kInvalidArgument
  // for a tensor that is not defined().
  template <typename Result, typename... Parameters, typename... Arguments>
  auto run(const StepFunction<Result, Parameters...>& step, const Arguments&... arguments) {
    return step.run(*this, arguments...);
  }

  // --- Cross-replica: values

  // The sum or mean over replicas. With several workers, over all replicas of all of them: every
  // worker makes the call, and all get the same bits. Without an axis, element by element (equal
  // shapes needed). With one, also along it: a mean is the sum of all elements over their true
  // number, so uneven and empty parts weigh correctly. The axis may be negative. Integers are
  // added in int64: their mean is float64, and their sum, which keeps the dtype, wraps around
  // beyond its range. kInvalidArgument for another op, an axis beyond the rank, bools, values that
  // do not fit each other, or not one of each replica that is defined().
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value,
                std::optional<int64_t> axis = std::nullopt);
  // By name, in any case: reduce("sum", ...).
  template <typename V>
  Tensor reduce(std::string_view op, const V& value, std::optional<int64_t> axis = std::nullopt) {
    return reduce(reduce_op_from_name(op), value, axis);
  }
  // Of a value that is not distributed. With several workers each has given one of its own, and the
  // sum or mean is that of these, one for each worker, however many replicas it has; a call of all
  // workers, as above. In a process on its own the mean is the value itself, and so is the sum with
  // one replica or where it is 0, else kInvalidArgument.
  Tensor reduce(ReduceOp op, const Tensor& value, std::optional<int64_t> axis = std::nullopt);
  // All replicas' values one behind the other along `axis`, over all workers as with `reduce`; the
  // other extents and the dtypes must be equal (kInvalidArgument).
  Tensor gather(const PerReplica<Tensor>& value, int64_t axis);
  // The components of this process's replicas; a value that is not distributed is its only one.
  template <typename T>
  std::vector<T> local_results(const PerReplica<T>& value) const {
    return value.values();
  }
  std::vector<Tensor> local_results(const Tensor& value) const { return {value}; }
  // What `function` returns for each replica of this process, called in their order.
  // kInvalidArgument where there is none.
  PerReplica<Tensor> distribute_values_from_function(
      const std::function<Tensor(const ValueContext&)>& function);

  // --- Cross-replica: input (core/data/distributed_dataset.h)

  // Batches of `dataset`, which are global ones, divided over the replicas. A call of all workers,
  // with the same batches, number of elements and division, and the same order where it decides who
  // reads what (kFailedPrecondition, naming two workers and what differs). kInvalidArgument for a
  // dataset without batch().
  data::DistributedDataset distribute_dataset(const data::Dataset& dataset,
                                              const InputOptions& options = {});
  // Calls `function` for this process's pipeline; its batches are those of one replica, handed out
  // in turn. With several workers each call of next() on its iterators is one of all of them.
  // Nothing is divided: keep_order, and sharding by file or element, are kInvalidArgument.
  data::DistributedDataset distribute_datasets_from_function(
      const std::function<data::Dataset(const InputContext&)>& function,
      const InputOptions& options = {});

  // --- The contract that a new strategy implements

  // Makes a variable; called by cohort::create_variable.
  virtual std::shared_ptr<Variable> create_variable(const VariableOptions& options) = 0;
  // While a step is traced: the sums over all replicas of each replica's gradients, dense or
  // sparse. None stays none. It begins with require_replica. `when`, a bool scalar that is the same
  // on every replica, says at run time whether to: without it the results are undefined and nothing
  // is communicated.
  virtual std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                                 const Value& when = {}) = 0;
  // While a step is traced: between them are the updates of variables (Variable::update), which
  // follow from reduced gradients.
  virtual void begin_update() {}
  virtual void end_update() {}
  // Where updates are made instead of by the step: asked by optimizers. Null: the step makes them.
  virtual RemoteUpdates* remote_updates() { return nullptr; }
  // fit() has ended, for whatever reason, and nobody is to wait for steps of this process. Must not
  // throw.
  virtual void end_training() {}
  // A dataset is about to be divided over the input pipelines of several workers. Throws where the
  // others will not take their shares.
  virtual void require_shares() const {}
  // What there is to say about the steps since the last call.
  virtual StrategyReport take_report() { return {}; }
  // For how long all steps so far have stood still. Nothing where nobody here sees it, as where
  // GPUs combine values by themselves. From any thread.
  virtual std::optional<StepWaits> waits() const { return StepWaits{}; }
  // Runs `function` once on every local replica at the same time, with that replica's inputs, and
  // waits for all. Result: one list of outputs per local replica. An error of a replica stops the
  // others, and the first one is thrown when all have. Then no variable has changed and the next
  // run works again, unless replicas had combined values and some may have begun to change
  // variables by them: where copies may differ now, that error is the one of every later run.
  // What a single replica has written before its error stays.
  PerReplica<std::vector<Tensor>> run(const Function& function,
                                      const PerReplica<std::vector<Tensor>>& inputs,
                                      const RunOptions& options = {});

  // Where there are several replicas: kFailedPrecondition unless the function being traced is one
  // that they run. In another one, `method` would see the values of a single one.
  void require_replica(std::string_view method) const;

  // Of the global rows of `batch` those of each local replica, by split_rows, sharing memory: for
  // running a Function. kInvalidArgument for no tensors, or some of other rows.
  PerReplica<std::vector<Tensor>> split_batch(const std::vector<Tensor>& batch) const;
  // The same of a data::Batch, for a step that takes one: strategy.run(step, split_batch(batch)).
  template <internal::NamedTensors Batch>
  PerReplica<Batch> split_batch(const Batch& batch) const {
    std::vector<Tensor> tensors;
    for (const auto& field : batch.fields()) tensors.push_back(field.tensor);
    const auto parts = split_batch(tensors);
    PerReplica<Batch> batches(parts.size());
    for (size_t r = 0; r < parts.size(); ++r)
      for (size_t i = 0; i < tensors.size(); ++i)
        batches[r].set(batch.fields()[i].name, parts[r][i]);
    return batches;
  }

 protected:
  // What `run` does after its checks and the tracing; one call at a time.
  virtual PerReplica<std::vector<Tensor>> run_replicas(
      const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
      const ReplicaGroup& group, const RunOptions& options) = 0;
  // Called by `run` on every worker: the signatures of all replicas in sync, in replica order,
  // given those of the local ones.
  virtual std::vector<Signature> signatures_in_sync(const Function& function,
                                                    const std::vector<Signature>& local,
                                                    const RunOptions& options);
  // Whether `variable` lives where variables of this strategy do: on its devices.
  virtual bool is_home_of(const Variable& variable) const;
  // Whether a scope of it has been entered, on whichever thread.
  bool was_entered() const;
  // What the variables that this thread makes are to be colocated with, or null.
  std::shared_ptr<Variable> colocated_with() const;
  // What `reduce` and `gather` do with the values of all replicas.
  virtual CrossDeviceOps& cross_device_ops();
  // kFailedPrecondition inside a replica or another function that is being traced: "NAME::`method`
  // cannot be called inside a replica; `instead`".
  void require_cross_replica(std::string_view method, std::string_view instead) const;

 private:
  void note_entered();
  void require_inputs(const Function& function,
                      const PerReplica<std::vector<Tensor>>& inputs) const;
  void require_value_of_each_replica(const PerReplica<Tensor>& value) const;
  // The reduction of the values of all workers, given the own ones, which are checked.
  Tensor reduce_over_workers(const std::string& topic, ReduceOp op, const PerReplica<Tensor>& value,
                             std::optional<int64_t> axis);
  // The values of all replicas in sync, given those of the local ones.
  PerReplica<Tensor> of_all_workers(const std::string& topic,
                                    const PerReplica<Tensor>& value) const;

  friend std::shared_ptr<Variable> create_variable(VariableOptions options);
  friend Workers& workers_of(const std::vector<std::shared_ptr<Variable>>& variables);
  struct State;
  std::unique_ptr<State> state_;
};

struct Entered;

class Strategy::Scope {
 public:
  explicit Scope(Strategy& strategy);
  // Leaves the scope. Out of order, it prints a warning and leaves when the inner scopes have.
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Leaves the scope early. kFailedPrecondition, and nothing happens, unless it is the innermost
  // one of this thread and no NameScope or Colocation entered inside is still open: the message
  // names what is.
  void exit();

 private:
  std::shared_ptr<Entered> entry_;
};

// What Strategy::colocate_vars_with returns.
class Strategy::Colocation {
 public:
  Colocation(Strategy& strategy, const std::shared_ptr<Variable>& variable);
  // Ends it. Out of order, it prints a warning and ends when the inner colocations have.
  ~Colocation();
  Colocation(const Colocation&) = delete;
  Colocation& operator=(const Colocation&) = delete;

  // Ends it early. kFailedPrecondition, and nothing happens, unless it is the innermost one of this
  // thread and no Scope entered inside is still open.
  void exit();

 private:
  std::shared_ptr<Entered> entry_;
};

// The strategy of the innermost scope on this thread, or the default strategy. kFailedPrecondition
// where that of the scope has ended.
Strategy& current_strategy();
// The strategy with one replica on cpu:0 and plain variables.
Strategy& default_strategy();
// How often fit() has ended so far that trained under it, on whichever thread.
int64_t trainings_without_strategy();

// Makes a variable under the current strategy, named within the current NameScope. kInvalidArgument
// as make_initial_value and Variable say.
std::shared_ptr<Variable> create_variable(VariableOptions options);

// The workers of the strategy in whose scope variables were made: that of the first that was made
// in any. Where none was, or it is gone, those of the current one.
Workers& workers_of(const std::vector<std::shared_ptr<Variable>>& variables);

// A strategy over one device: what the default strategy is for cpu:0. kNotFound, listing the
// devices, where there is no such one.
std::unique_ptr<Strategy> make_single_device_strategy(std::string name, Device device);

}  // namespace cohort
