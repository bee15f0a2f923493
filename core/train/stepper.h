#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/distributed_dataset.h"
#include "core/train/model.h"
#include "core/train/objective.h"

namespace cohort {

// Sums over batches from which losses and metrics follow, in float64.
struct Totals {
  double loss = 0;  // of each row's share in its batch's loss
  int64_t rows = 0;
  std::vector<metrics::State> metrics;  // of Stepper::metrics(); empty before the first batch
};

// Runs single steps of a compiled model on all replicas. A step is one traced function of the
// network's inputs and, for each objective, the labels and a weight for each row or each of its
// time steps. Each replica divides the sum over its own rows by the number of rows of the global
// batch: so shares of any size, and none, add up to the exact loss. Replicas of one process are
// added up here; those of several add up inside the step, so that every worker has the same totals
// at any moment.
class Stepper {
 public:
  // Of a replica, and of all in sync.
  struct Rows {
    int64_t own = 0, global = 0;
  };

  // kInvalidArgument as objectives_of(), and when two results would have one name;
  // kFailedPrecondition when the network has several outputs whose names are not known yet.
  Stepper(nn::Layer network, Strategy& strategy, CompileOptions options);

  const CompileOptions& options() const { return options_; }
  // To be called before train(), once the network has its variables: makes the optimizer's.
  void begin();
  // To be called before the variables are read without training, once the network has them. Where
  // updates are made elsewhere, its trainable ones become those that the optimizer moves, which
  // other processes may have trained, but for what an optimizer moves already.
  void attach();
  // Continues with the step that the optimizer counts; random ops of training depend on nothing but
  // it and the seed.
  void find_step();
  int64_t step() const { return step_; }
  // How many batches have been tested, which takes the place of the step there.
  int64_t tested() const { return tested_; }
  void continue_tests_at(int64_t tested) { tested_ = tested; }
  // All that are computed besides the loss, each under a name of its own: for each objective its
  // loss, where it is one of several outputs, its metrics and its weighted_metrics.
  const std::vector<metrics::Metric>& metrics() const { return metrics_; }
  // Whether metrics()[index] is one of weighted_metrics.
  bool is_weighted(size_t index) const { return is_weighted_[index]; }
  // Without rows, a worker on its own takes no step, unless others wait for its gradient: momentum
  // and weight decay would move weights by it.
  void train(const data::DistributedBatch& batch, const ClassWeight& class_weight, Totals& totals);
  void test(const data::DistributedBatch& batch, Totals& totals);

  // What its compiled steps hold.
  FunctionMemory memory() const;

  // The results that the sums amount to: "loss" and each metric; 0 before the first batch.
  Logs logs(const Totals& totals) const;

 private:
  std::vector<Value> trace(const std::vector<Value>& inputs, bool training) const;
  // Where others step by themselves and their gradients go into one mean with this one: what it
  // weighs there, so that the mean is that over the rows of all. None: as much as another one.
  Value weight(const std::vector<Value>& predictions, std::span<const Value> targets,
               const Rows& rows) const;
  // The sum of the objectives' losses, each times its weight; none where there are none. Appends
  // what is added to the state of each of metrics(). `targets` are labels and weights in turn.
  Value measure(const std::vector<Value>& predictions, std::span<const Value> targets,
                const Rows& rows, std::vector<Value>& increments) const;
  void run(const Function& function, const data::DistributedBatch& batch, int64_t step,
           const ClassWeight& class_weight, Totals& totals);
  void add_up(const PerReplica<std::vector<Tensor>>& results, Totals& totals) const;
  void add_metric(metrics::Metric metric, bool is_weighted);
  // What the step takes of one replica's rows.
  std::vector<Tensor> inputs_of(const data::Batch& batch, const ClassWeight& class_weight);
  // kInvalidArgument for labels and weights of no output.
  void require_known_targets(const data::Batch& batch) const;
  // For the rows of one replica: [rows], or the shape in which a batch has several a row.
  Tensor weights_of(const data::Batch& batch, const std::string& output, const Tensor& label,
                    const ClassWeight& class_weight);
  // kInvalidArgument for columns of labels that are not the classes which the network predicts.
  void require_class_columns(const data::Batch& batch, const Tensor& label);

  nn::Layer network_;
  Strategy& strategy_;
  CompileOptions options_;
  std::vector<std::string> outputs_;  // their names; "" for the only one
  std::vector<Objective> objectives_;
  std::vector<metrics::Metric> metrics_;
  std::vector<bool> is_weighted_;
  Function train_, test_;
  int64_t step_ = 0, tested_ = 0;
  Tensor ones_;                  // the weights of rows that have none
  std::optional<Shape> output_;  // of a row, once asked for
};

// The inputs of the network: every tensor but labels and weights. kInvalidArgument when there is
// none.
std::vector<Tensor> features_of(const data::Batch& batch);

}  // namespace cohort
