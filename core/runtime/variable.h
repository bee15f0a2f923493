#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"
#include "core/graph/graph.h"
#include "core/tensor/scatter_op.h"

namespace cohort {

// How the copies of a variable are kept together, with the meanings of tf.VariableSynchronization:
// on write (every copy always equal; kAuto chooses this), on read (each replica its own, merged
// when read outside replicas), or not at all.
enum class Synchronization { kAuto, kOnWrite, kOnRead, kNone };
// How differing values are merged, with the meanings of tf.VariableAggregation.
enum class Aggregation { kNone, kSum, kMean, kOnlyFirstReplica };

// What it takes to make a variable.
struct VariableOptions {
  std::string name = "variable";  // as it is: create_variable puts the current NameScope in front
  TensorSpec spec;
  // Makes the initial value, on the host. Called once; every copy gets the same value. None, or a
  // value of another spec, is kInvalidArgument.
  std::function<Tensor()> initial_value;
  bool trainable = true;
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
  // What optimizers make of the new value after each update; none: they leave it.
  std::function<Value(const Value&)> constraint = {};
};

// State that outlives a function call: model weights, optimizer slots, counters. Made by
// `create_variable` (core/distribute), so that the current strategy decides how many copies exist
// and where; nn layers and optimizers hold it by shared_ptr. Reading and writing inside a traced
// function adds nodes; outside it acts at once. Not synchronised with a running function: do not
// write while one runs.
//
// A write inside a function is made by every replica, and merged as the aggregation says
// (tf.distribute's rules for a write in replica context):
// - kSum, kMean: the values are reduced over the replicas, then written to every copy. Under kSum a
//   constant other than 0, or an argument that every replica was given alike, is kInvalidArgument,
//   because each replica would count it; the mean of integers is kInvalidArgument as well. With
//   several workers an argument is each worker's own, and none is given to every replica alike: one
//   tensor for a worker's replicas is counted by each of them.
// - kOnlyFirstReplica: replica 0's value is written to every copy.
// - kNone: a value that is the same on every replica (is_same_on_replicas) is written; another is
//   kInvalidArgument, naming the aggregations to choose from.
// A variable synchronised on read is written by each replica to its own copy, without aggregation;
// to make one with the mean of integers is kInvalidArgument. One that is not synchronised at all is
// written likewise, and outside its value is the first copy. With one replica, a write is just
// that; and under a strategy of one device (make_single_device_strategy) every variable is an
// ordinary one, inside and outside, but that one synchronised on read has no scatter there either:
// a program is refused under one device for what it would be refused for under several.
//
// A function that is called by itself, not by a strategy, acts as code outside functions does: it
// reads the merged value and writes all copies. In its graph the merged value is a variable of this
// name, until it has written the copies. A function run by another strategy than the one in
// whose scope the variable was made, or by several replicas where it was made outside any, is
// kFailedPrecondition.
class Variable : public Resource, public std::enable_shared_from_this<Variable> {
 public:
  const std::string& name() const override { return name_; }
  const TensorSpec& spec() const override { return spec_; }
  // Whether it is one of its layer's trainable variables. An optimizer changes what it is given.
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }
  Synchronization synchronization() const { return synchronization_; }
  Aggregation aggregation() const { return aggregation_; }
  const std::function<Value(const Value&)>& constraint() const { return constraint_; }

  // --- While a function is traced

  // The value as a replica sees it.
  Value read();
  // Writes; the result is the value that the replica sees from now on. kInvalidArgument when the
  // spec differs, naming the variable.
  Value assign(const Value& value);
  Value assign_add(const Value& delta);
  Value assign_sub(const Value& delta);
  // Changes rows of axis 0: indices integer [n] in [0, rows), updates [n, ...]; duplicates take
  // effect one after the other, in replica order. Other shapes and dtypes, or a variable of bools
  // or without rows, are kInvalidArgument; an index out of range is kOutOfRange when the function
  // runs. With kSum the replicas' rows follow each other;
  // kMean divides their updates by the number of replicas first. kMin, kMax and kUpdate are
  // kUnimplemented under kSum and kMean, and every scatter is on a variable synchronised on read.
  void scatter(ScatterOp op, const Value& indices, const Value& updates);
  // Write without aggregating: for optimizers, whose values follow from reduced gradients and are
  // equal on every replica already. Between Strategy::begin_update and end_update only.
  // kInvalidArgument as above.
  void update(const Value& value);
  void scatter_update(ScatterOp op, const Value& indices, const Value& updates);

  // --- Outside: kFailedPrecondition while a function is traced, of which they would not be part

  // A copy of the value, merged over replicas as the aggregation says. Reading or writing a
  // variable that is synchronised on read without an aggregation is kInvalidArgument: it has only
  // values of replicas.
  Tensor value() const;
  // To all copies. kInvalidArgument when the spec differs, naming the variable. On read with kSum,
  // each copy gets its equal part of a value assigned, and adding is kInvalidArgument.
  void assign(const Tensor& value);
  void assign_add(const Tensor& delta);
  void assign_sub(const Tensor& delta);
  void scatter(ScatterOp op, const Tensor& indices, const Tensor& updates);

  // --- For the runtime

  // In whose scope it was made (ReplicaGroup::strategy); 0, which it starts with, is outside any.
  void set_strategy(uint64_t strategy, std::string name);
  uint64_t strategy() const { return strategy_; }

  // The memory that local replica `replica` reads and writes; stable for the variable's life.
  // kFailedPrecondition where the variable was made for fewer replicas.
  virtual Tensor storage(int replica) = 0;
  // The same for functions that no strategy runs.
  virtual Tensor storage_outside(int replica) { return storage(replica); }
  // What such a function calls each time that it runs: before it reads that, or writes a part of
  // it; before it writes it; and when it has done so, unless it has ended with an error.
  virtual void begin_read_outside() {}
  virtual void begin_write_outside() {}
  virtual void end_write_outside() {}
  // How many local replicas it was made for.
  virtual int num_replicas() const = 0;
  // Whether `replica` executes writes: not where replicas share one copy that another one writes.
  virtual bool is_written_by(int /*replica*/) const { return true; }
  // Whether the replicas read and write one memory, so that each of them may write a part of it;
  // what is not written in parts, the one of is_written_by writes.
  virtual bool is_shared() const { return false; }
  // How many replicas do, in all processes: 1 where each has its own. And which of them local
  // replica 0 is.
  virtual int num_sharing() const { return is_shared() ? num_replicas() : 1; }
  virtual int first_sharing() const { return 0; }
  // Whether others than the replicas in sync may write it at any time, so that writing back what
  // was read would undo what they have written.
  virtual bool is_written_by_others() const { return false; }
  // Whether reads give every replica the same bits.
  virtual bool is_same_on_replicas() const;
  // The devices that hold a copy.
  virtual std::vector<Device> devices() const = 0;
  // The copies of the replicas after the first, each as a variable of its own. None where replicas
  // share one.
  virtual std::vector<std::shared_ptr<Variable>> other_copies() const { return {}; }
  // Whether several copies make the value, so that no memory has it. A function that no strategy
  // runs reads it then from memory of its own, which gets merged_value() each time that it runs.
  virtual bool is_merged() const;
  virtual Tensor merged_value() const { return load_value(); }

 protected:
  explicit Variable(const VariableOptions& options);
  // Copies `value` into one copy's memory after checking its spec.
  void assign_storage(Tensor& storage, const Tensor& value) const;
  // Throws as `storage` does.
  void require_replica(int replica) const;

  // What value(), assign() and so on do outside.
  virtual Tensor load_value() const = 0;
  virtual void store_value(const Tensor& value);
  virtual void add_value(const Tensor& delta);
  virtual void subtract_value(const Tensor& delta);
  virtual void scatter_values(ScatterOp op, const Tensor& indices, const Tensor& updates);

 private:
  // kFailedPrecondition while a function is traced: `call` acts once, and `instead` is meant.
  void require_outside(std::string_view call, std::string_view instead) const;
  // kFailedPrecondition where another strategy runs the function being traced.
  void require_group() const;

  std::string name_;
  TensorSpec spec_;
  bool trainable_;
  Synchronization synchronization_;
  Aggregation aggregation_;
  std::function<Value(const Value&)> constraint_;
  uint64_t strategy_ = 0;
  std::string strategy_name_;
};

// kInvalidArgument where there is no options.initial_value.
void require_initial_value(const VariableOptions& options);
// Calls it; kInvalidArgument where there is none, or it returns another spec.
Tensor make_initial_value(const VariableOptions& options);

// A variable with one copy, for one replica on `device`.
std::shared_ptr<Variable> make_local_variable(const VariableOptions& options, Device device = {});

}  // namespace cohort
