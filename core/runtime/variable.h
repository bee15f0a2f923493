#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/graph/graph.h"

namespace cohort {

// How the copies of a variable are kept together, with the meanings of tf.VariableSynchronization:
// on write (every copy always equal; kAuto chooses this), on read (each replica its own, merged
// when read outside replicas), or not at all.
enum class Synchronization { kAuto, kOnWrite, kOnRead, kNone };
// How differing values are merged, with the meanings of tf.VariableAggregation.
enum class Aggregation { kNone, kSum, kMean, kOnlyFirstReplica };

// What it takes to make a variable.
struct VariableOptions {
  std::string name = "variable";  // the current NameScope is put in front
  TensorSpec spec;
  // Makes the initial value, of exactly `spec`, on the host. Called once; every copy gets the same
  // value.
  std::function<Tensor()> initial_value;
  bool trainable = true;
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
};

// State that outlives a function call: model weights, optimizer slots, counters. Made by
// `create_variable` (core/distribute), so that the current strategy decides how many copies exist
// and where; nn layers and optimizers hold it by shared_ptr. Reading and writing inside a traced
// function adds nodes; outside it acts at once. Not synchronised with a running function: do not
// write while one runs.
class Variable : public Resource, public std::enable_shared_from_this<Variable> {
 public:
  const std::string& name() const override { return name_; }
  const TensorSpec& spec() const override { return spec_; }
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }

  // In a traced function: the value as a replica sees it, and a new value for it.
  Value read();
  void assign(const Value& value);

  // Outside: a copy of the value, merged over replicas as the aggregation says; and an assignment
  // to all copies. kInvalidArgument when the spec differs, naming the variable.
  virtual Tensor value() const = 0;
  virtual void set_value(const Tensor& value) = 0;
  // The memory that local replica `replica` reads and writes; stable for the variable's life.
  virtual Tensor storage(int replica) = 0;

 protected:
  Variable(std::string name, TensorSpec spec, bool trainable)
      : name_(std::move(name)), spec_(std::move(spec)), trainable_(trainable) {}
  // Copies `value` into one copy's memory after checking its spec.
  void assign_storage(Tensor& storage, const Tensor& value) const;

 private:
  std::string name_;
  TensorSpec spec_;
  bool trainable_;
};

// Calls options.initial_value and checks that it returned options.spec.
Tensor make_initial_value(const VariableOptions& options);

// A variable with one copy in host memory.
std::shared_ptr<Variable> make_local_variable(const VariableOptions& options);

}  // namespace cohort
