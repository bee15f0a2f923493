#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/graph/graph.h"

// Losses by Keras' names, defaults and formulas.
namespace cohort::losses {

// How the losses of a batch become one number: their sum divided by the number of rows of the
// global batch, whatever number of replicas it is split over, or by the sum of the weights of these
// rows, or of their time steps; or just their sum. Where a loss passes over some labels
// (ignore_class), only what is left is counted. The loss of an epoch or of evaluate() is the mean
// of these numbers by the batches' rows, as in Keras: that of all rows where they are what a batch
// divides by. Otherwise it depends on which rows meet in a batch, and so on the batch size and on
// how many workers share out the data.
enum class Reduction { kSumOverBatchSize, kMeanWithSampleWeight, kSum };

// A loss: a function of (y_true, y_pred) to one number a sample. A value type; make one of your own
// from any such function.
class Loss {
 public:
  // Maps to [rows, ..]: losses of the samples, or of the parts of each. What has 16 bits comes as
  // float32.
  using Function = std::function<Value(const Value& y_true, const Value& y_pred)>;

  // `counted`, if any, maps to 1 for each loss that counts and 0 for those, 0 as well, that do not.
  Loss(std::string name, Function function, Reduction reduction = Reduction::kSumOverBatchSize,
       Function counted = {})
      : name_(std::move(name)),
        function_(std::move(function)),
        counted_(std::move(counted)),
        reduction_(reduction) {}

  // [rows]: for outputs such as [rows, t, classes], the mean over t (the sum for kSum). A
  // sample_weight, [rows] or [rows, t], multiplies the losses before. Training code divides the sum
  // by that of divisor() over all replicas, which is the global rows where it is none, unless
  // reduction() is kSum. kInvalidArgument, naming the loss and both specs, when they do not fit.
  Value per_example(const Value& y_true, const Value& y_pred,
                    const Value& sample_weight = {}) const;
  // A scalar: what these rows add to the number that the sum of the losses is divided by, which may
  // be 0. None where that is their number, and for kSum.
  Value divisor(const Value& y_true, const Value& y_pred, const Value& sample_weight = {}) const;
  const std::string& name() const { return name_; }
  Reduction reduction() const { return reduction_; }

 private:
  template <typename Work>
  auto named(const Value& y_true, const Value& y_pred, const Work& work) const;
  Value reduced(const Value& parts, const Value& weight) const;

  std::string name_;
  Function function_, counted_;
  Reduction reduction_;
};

struct ClassificationOptions {
  bool from_logits = false;  // y_pred is before the softmax (or sigmoid): faster and more exact
  // In [0, 1): how far targets move towards the uniform distribution (Szegedy et al. 2015).
  double label_smoothing = 0;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
struct SparseClassificationOptions {
  bool from_logits = false;
  double label_smoothing = 0;  // as above: of the distribution that has all at the label
  // What has this label, which need not be that of a class, has no loss and is not counted: padding
  // of sequences (0), or the border of a segmentation (255).
  std::optional<int64_t> ignore_class = {};
  Reduction reduction = Reduction::kSumOverBatchSize;
};
struct RegressionOptions {
  Reduction reduction = Reduction::kSumOverBatchSize;
};

// y_true: class numbers [rows, ..] (or [rows, .., 1]); y_pred: [rows, .., classes].
Loss SparseCategoricalCrossentropy(const SparseClassificationOptions& options = {});
// y_true: distributions, [rows, .., classes] as y_pred. Without from_logits each distribution of
// y_pred is first divided by its sum.
Loss CategoricalCrossentropy(const ClassificationOptions& options = {});
// y_true: 0 or 1 (or between), of y_pred's shape; the mean over the last axis. The others too:
// a last axis of 1 may be left out on either side.
Loss BinaryCrossentropy(const ClassificationOptions& options = {});
Loss MeanSquaredError(const RegressionOptions& options = {});
Loss MeanAbsoluteError(const RegressionOptions& options = {});
// Quadratic within `delta` of the target and linear beyond (Huber 1964).
Loss Huber(double delta = 1, const RegressionOptions& options = {});
// sum(y_true * log(y_true / y_pred)) over the last axis.
Loss KLDivergence(const RegressionOptions& options = {});

struct AverageLossOptions {
  Value sample_weight = {};  // as weighted() takes it; none: every loss counts once
  // None: the rows that all replicas have together, which only a replica knows.
  std::optional<int64_t> global_batch_size = {};
};
// For steps of one's own (tf.nn.compute_average_loss): the sum of losses [rows, ..], each by its
// weight, over the global batch size, so that the replicas' results add up to the mean of the
// global batch. 0 where that has no rows, where a mean would be no number. kInvalidArgument for a
// scalar, weights that do not fit or a negative size; kFailedPrecondition in a scope but outside
// its replicas, without a size.
Value compute_average_loss(const Value& per_example, const AverageLossOptions& options = {});

// For loops of one's own: class numbers [..] and logits [.., classes] -> [..]. Labels may be of any
// number type, and may have a last axis of 1 more.
Value sparse_softmax_cross_entropy(const Value& logits, const Value& labels);

// `values` [rows, ..], each by its weight. The values' shape begins with the weights': [rows] is
// one a row, the values' own shape one each, a scalar the same for all. kInvalidArgument naming
// both otherwise.
Value weighted(const Value& values, const Value& sample_weight);

// 16-bit numbers as float32, which losses and metrics are computed in; others as they are.
Value widened(const Value& x);

// y_true of y_pred's dtype and shape, where it only lacks (or has too many of) a last axis of 1.
// kInvalidArgument naming both otherwise.
Value match_prediction(const Value& y_true, const Value& y_pred);
// Class numbers for predictions [.., classes] as integers [..], from any number type and with a
// last axis of 1 or without; fractions are cut off, and NaN is -1, which is no class.
// kInvalidArgument naming both otherwise.
Value match_labels(const Value& labels, const Value& y_pred);

}  // namespace cohort::losses
