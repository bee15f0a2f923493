#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/distribute/per_replica.h"
#include "core/graph/graph.h"

namespace cohort {
class Strategy;
}  // namespace cohort

// Metrics by Keras' names, defaults and formulas. A metric is computed from sums, so that it is
// exact over batches of any size and over replicas.
namespace cohort::metrics {

// The sums of a metric since the last reset: the elements of its increments, in order.
using State = std::vector<double>;

// Which of a metric's values are better: higher or lower ones.
enum class Direction { kUnknown, kUp, kDown };

// A metric: what each batch adds to its sums, and the number that these amount to. A value type;
// make one of your own from any two such functions, or by Mean.
class Metric {
 public:
  // While tracing: what a batch adds to the state, as floating values. `weights` is [rows], or
  // [rows, t] where each time step has its own, or none; losses::weighted multiplies by them.
  using Update = std::function<std::vector<Value>(const Value& y_true, const Value& y_pred,
                                                  const Value& weights)>;
  // The metric's value; of an empty state too (then 0).
  using Result = std::function<double(const State& state)>;

  Metric(std::string name, Update update, Result result, Direction direction = Direction::kUnknown)
      : name_(std::move(name)),
        update_(std::move(update)),
        result_(std::move(result)),
        direction_(direction) {}

  const std::string& name() const { return name_; }
  // The same under another name.
  Metric renamed(std::string name) const { return {std::move(name), update_, result_, direction_}; }
  // What callbacks that watch it go by, unless they are told.
  Direction direction() const { return direction_; }
  // kInvalidArgument, naming the metric and the specs, when they do not fit.
  std::vector<Value> increments(const Value& y_true, const Value& y_pred,
                                const Value& weights = {}) const;
  double result(const State& state) const { return state.empty() ? 0.0 : result_(state); }

 private:
  std::string name_;
  Update update_;
  Result result_;
  Direction direction_;
};

// Adds the tensors that one replica computed for one batch to `state`, in float64; an empty state
// takes their size, one of another size is kFailedPrecondition.
void accumulate(State& state, std::span<const Tensor> increments);
// Adds what all replicas computed, as Strategy::run has returned it: on every worker, all of which
// make the call, the state is that of all rows.
void accumulate(State& state, Strategy& strategy, std::span<const PerReplica<Tensor>> increments);

// The weighted mean of `function`(y_true, y_pred), which gives [rows, ..]: how to write a metric of
// one's own. A weight is that of the mean of all values that it is for.
Metric Mean(std::string name,
            std::function<Value(const Value& y_true, const Value& y_pred)> function,
            Direction direction = Direction::kUnknown);

// y_true: class numbers [rows, ..] (or [rows, .., 1]); y_pred: [rows, .., classes].
// What has the label `ignore_class`, such as padding, does not count.
Metric SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy",
                                 std::optional<int64_t> ignore_class = {});
// y_true: distributions, [rows, .., classes] as y_pred.
Metric CategoricalAccuracy(std::string name = "categorical_accuracy");
// y_true: 0 or 1, of y_pred's shape; a last axis of 1 may be left out on either side. So it is with
// all that follow but those of top k and MeanIoU. What is above the threshold is predicted to be
// 1; thresholds beyond [0, 1] are kInvalidArgument.
Metric BinaryAccuracy(double threshold = 0.5, std::string name = "binary_accuracy");
// As SparseCategoricalAccuracy, where the label is among the k highest, of which equal ones have
// lower class numbers first; k is at least 1.
Metric SparseTopKCategoricalAccuracy(int64_t k = 5,
                                     std::string name = "sparse_top_k_categorical_accuracy");
// The same for distributions, as CategoricalAccuracy.
Metric TopKCategoricalAccuracy(int64_t k = 5, std::string name = "top_k_categorical_accuracy");
Metric MeanSquaredError(std::string name = "mean_squared_error");
Metric MeanAbsoluteError(std::string name = "mean_absolute_error");

// Of predictions in [0, 1], where another is kOutOfRange at run time, or of logits with a threshold
// of 0; 0 where nothing is predicted (or true). To these and to AUC every label but 0 is a 1, as in
// Keras.
Metric Precision(double threshold = 0.5, std::string name = "precision");
Metric Recall(double threshold = 0.5, std::string name = "recall");
// Of the classes of [rows, .., classes]; y_true has that shape, too.
struct ClassFilter {
  std::optional<int64_t> class_id = {};  // only this one
  // Predicted are the k highest of each row (k at least 1), of which equal ones have lower class
  // numbers first; without a threshold whatever they are.
  std::optional<int64_t> top_k = {};
  std::optional<double> threshold = {};  // 0.5 without top_k
  std::string name = {};                 // "precision", "recall"
};
// A class beyond those that there are is kInvalidArgument when the metric is traced.
Metric Precision(const ClassFilter& filter);
Metric Recall(const ClassFilter& filter);

enum class Curve { kROC, kPR };

struct AucOptions {
  int64_t num_thresholds = 200;  // at least 2
  Curve curve = Curve::kROC;
  bool from_logits = false;
  std::string name = "auc";
};
// Area under the ROC curve, by trapezoids between thresholds; or under the precision over the
// recall, between thresholds as Davis and Goadrich 2006 interpolate. Without from_logits, a
// prediction beyond [0, 1] is kOutOfRange at run time.
Metric AUC(const AucOptions& options = {});

struct MeanIoUOptions {
  std::optional<int64_t> ignore_class = {};  // what has this label does not count
  bool sparse_y_pred = false;                // y_pred: class numbers, of y_true's shape
  std::string name = "mean_io_u";
};
// Of semantic segmentation: for each class, of what has it as its label or as its prediction the
// share that has both; the mean over classes that occur. y_true: class numbers [rows, ..] (or
// [rows, .., 1]); y_pred: [rows, .., classes], of which the highest counts. A class that is none of
// num_classes, and not the one to ignore, is kOutOfRange at run time.
Metric MeanIoU(int64_t num_classes, const MeanIoUOptions& options = {});

}  // namespace cohort::metrics
