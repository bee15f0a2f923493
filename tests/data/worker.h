#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/distributed_dataset.h"
#include "tests/data/testing.h"

// Distributed datasets as the tests see them: the values that each replica of a worker gets.
namespace cohort::data {

using Values = std::vector<int64_t>;
// The values of each replica at a step, and of each step.
using Step = std::vector<Values>;
using Steps = std::vector<Step>;

// The replicas of one of several workers, as far as input goes.
class Worker final : public Strategy {
 public:
  explicit Worker(int replicas, int workers = 1, int index = 0)
      : devices_(replicas), workers_(workers), index_(index) {}
  std::string name() const override { return "Worker"; }
  const std::vector<Device>& devices() const override { return devices_; }
  int num_replicas_in_sync() const override { return workers_ * local(); }
  int first_replica() const override { return index_ * local(); }
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override {
    return make_local_variable(options);
  }
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value&) override {
    return gradients;
  }

 private:
  int local() const { return static_cast<int>(devices_.size()); }
  PerReplica<std::vector<Tensor>> run_replicas(const Function&,
                                               const PerReplica<std::vector<Tensor>>&,
                                               const ReplicaGroup&, const RunOptions&) override {
    fail(Code::kUnimplemented, "a Worker only reads input");
  }

  std::vector<Device> devices_;
  int workers_, index_;
};

Step step_of(const DistributedBatch& batch);
// The steps still to come from an iterator.
Steps rest(DistributedIterator& iterator);
Steps steps(const DistributedDataset& dataset, uint64_t epoch = 0);

// Batches of these sizes, whose rows count up, of which only the function that makes them knows.
Dataset batches_from_a_generator(const std::vector<int64_t>& sizes);
// Element i: a list of 1 to 4 elements, all i.
Dataset lists(int64_t count);

}  // namespace cohort::data
