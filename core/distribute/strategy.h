#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/graph/gradients.h"
#include "core/runtime/function.h"
#include "core/runtime/variable.h"

namespace cohort {

class Strategy;

// What code running as one replica may ask. Exists while a function is traced or run by a strategy.
struct ReplicaContext {
  const Strategy* strategy = nullptr;
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// One value per local replica, in replica order.
template <typename T>
using PerReplica = std::vector<T>;

// How a batch of `rows` rows is divided over `replicas`: sizes differ by at most one, larger ones
// first (7 over 3 is 3, 2, 2), so some may be 0.
std::vector<int64_t> split_rows(int64_t rows, int replicas);

// Options of one Strategy::run.
struct RunOptions {
  uint64_t seed = 0;  // keys random ops, with the step and the replica
  int64_t step = 0;
  Precision precision = Precision::kFloat32;
};

// Decides where variables live, how replicas run and how their gradients meet: the contract that
// tf.distribute.Strategy sets, over traced graphs. Model, optimizer and training code are written
// against this class and never ask which strategy it is. Entered with `scope()`; outside any scope
// the default strategy, with one replica on cpu:0, is current.
//
// A new strategy implements the virtual functions. While a step is traced, gradients pass through
// `reduce_gradients` and variables through the Variable objects it made; nothing else is specific
// to it.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Makes this strategy current on this thread until the returned object is destroyed. Re-entering
  // the same strategy is allowed; entering another inside is kFailedPrecondition.
  class Scope;
  [[nodiscard]] Scope scope();

  // A name for messages: "MirroredStrategy".
  virtual std::string name() const = 0;
  // Replicas whose gradients are reduced together in a step, over all workers.
  virtual int num_replicas_in_sync() const = 0;
  // Devices of this process's replicas, in replica order.
  virtual const std::vector<Device>& devices() const = 0;

  // Makes a variable; called by create_variable.
  virtual std::shared_ptr<Variable> create_variable(const VariableOptions& options) = 0;
  // While a step is traced: the sums over all replicas of each replica's gradients. None stays
  // none.
  virtual std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients) = 0;
  // Runs `function` once on every local replica at the same time, with that replica's inputs, and
  // waits for all. Result: one list of outputs per local replica. The first replica's error is
  // thrown after all have stopped.
  virtual PerReplica<std::vector<Tensor>> run(const Function& function,
                                              const PerReplica<std::vector<Tensor>>& inputs,
                                              const RunOptions& options = {}) = 0;

  // The global rows of `batch` for each local replica, by split_rows, sharing memory.
  PerReplica<std::vector<Tensor>> split_batch(const std::vector<Tensor>& batch) const;
};

class Strategy::Scope {
 public:
  explicit Scope(Strategy& strategy);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Strategy* previous_;
};

// The strategy of the innermost scope on this thread, or the default strategy.
Strategy& current_strategy();
// The strategy with one replica on cpu:0 and plain variables.
Strategy& default_strategy();

// Makes a variable under the current strategy, named within the current NameScope.
std::shared_ptr<Variable> create_variable(VariableOptions options);

// A strategy over one device: what the default strategy is for cpu:0.
std::unique_ptr<Strategy> make_single_device_strategy(std::string name, Device device);

}  // namespace cohort
