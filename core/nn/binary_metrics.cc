// The metrics of what is predicted to be 1 or 0.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/nn/losses.h"
#include "core/nn/metric_helpers.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::metrics {
namespace {

using losses::match_prediction;
using losses::weighted;

void check_threshold(const char* metric, double threshold) {
  if (!(threshold >= 0 && threshold <= 1))
    invalid(metric, ": the threshold must be in [0, 1], got ", threshold);
}

Value greater_than(const Value& x, double threshold) {
  return ops::greater(x, ops::constant(threshold, x.dtype()));
}

// The elements one by one: predictions and targets as [n], and the weight of each. A target is 1
// where the label is not 0.
struct Binary {
  Value predicted, target, weight;
};

Binary binary(const Value& y_true, const Value& y_pred, const Value& weights) {
  const Value predicted = as_float(y_pred);
  const Value one = ops::constant(Tensor::full(predicted.dtype(), predicted.shape(), 1));
  const Value label = match_prediction(y_true, predicted);
  const Value target = ops::not_equal(label, ops::constant(0, label.dtype()));
  const auto flat = [](const Value& x) { return ops::flatten_from(x, 0); };
  return {flat(predicted), flat(ops::cast(target, predicted.dtype())),
          flat(weights.defined() ? weighted(one, weights) : one)};
}

// state[0] / (state[0] + state[1])
double share_of_first(const State& state) {
  require_size(state, 2);
  return ratio(state[0], state[0] + state[1]);
}

// How far Keras' outermost thresholds of an area are beyond 0 and 1.
constexpr double kBeyond = 1e-7;

// Keras' thresholds: evenly spaced, but for the outermost.
std::vector<double> auc_thresholds(int64_t count) {
  std::vector<double> thresholds;
  for (int64_t i = 0; i < count; ++i)
    thresholds.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  thresholds.front() -= kBeyond;
  thresholds.back() += kBeyond;
  return thresholds;
}

// `predicted`, of which all are in [0, 1] up to rounding; NaN, which is above no threshold, is left
// to the loss. `advice` says what logits need.
Value require_probabilities(const Value& predicted, std::string_view advice) {
  const Value outside =
      ops::logical_or(ops::less(predicted, ops::constant(-kBeyond, predicted.dtype())),
                      greater_than(predicted, 1 + kBeyond));
  const Value count = ops::reduce_sum(ops::cast(outside, DType::kFloat32));
  return ops::require(predicted, ops::equal(count, ops::constant(0, count.dtype())),
                      str("a prediction is not in [0, 1]; logits need ", advice));
}

// 1 where the prediction is above the threshold, else 0; only that of 0 is for logits as well.
Value found_by(const Value& predicted, double threshold) {
  const Value checked =
      threshold > 0 ? require_probabilities(predicted, "a threshold of 0") : predicted;
  return ops::cast(greater_than(checked, threshold), predicted.dtype());
}

void check_filter(const char* metric, const ClassFilter& filter) {
  if (filter.threshold) check_threshold(metric, *filter.threshold);
  if (filter.top_k && *filter.top_k < 1)
    invalid(metric, ": top_k must be at least 1, got ", *filter.top_k);
  if (filter.class_id && *filter.class_id < 0)
    invalid(metric, ": class_id must not be negative, got ", *filter.class_id);
}

Value only_class(const Value& x, std::optional<int64_t> class_id) {
  if (!class_id) return x;
  if (*class_id >= x.shape().dim(-1))
    invalid("there is no class ", *class_id, " among ", x.shape().dim(-1));
  const auto rank = static_cast<size_t>(x.shape().rank());
  std::vector<int64_t> begin(rank, 0), size(rank, -1);
  begin.back() = *class_id;
  size.back() = 1;
  return ops::slice(x, begin, size);
}

// What precision and recall count: the elements that a filter leaves, and which are found.
struct Found {
  Binary all;
  Value found;  // 1 or 0
};

Found find(const ClassFilter& filter, const Value& y_true, const Value& y_pred,
           const Value& weights) {
  const Value scores = as_float(y_pred), targets = match_prediction(y_true, scores);
  if ((filter.class_id || filter.top_k) && scores.shape().rank() < 2)
    invalid("y_pred needs shape [rows, .., classes], got ", scores.shape());
  const Binary all =
      binary(only_class(targets, filter.class_id), only_class(scores, filter.class_id), weights);
  Value found;
  if (filter.threshold || !filter.top_k)
    found = found_by(all.predicted, filter.threshold.value_or(0.5));
  if (filter.top_k) {
    const Value best = ops::reduce_sum(
        ops::one_hot(best_classes(scores, *filter.top_k), scores.shape().dim(-1), scores.dtype()),
        {-2});
    const Value is_best = ops::flatten_from(only_class(best, filter.class_id), 0);
    found = found.defined() ? found * is_best : is_best;
  }
  return {all, found};
}

// `state` holds, for each threshold, the true positives and then the false positives; above the
// lowest threshold everything is positive.
double area_under_roc(const State& state) {
  const size_t n = state.size() / 2;
  const double positives = state[0], negatives = state[n];
  double area = 0;
  for (size_t i = 0; i + 1 < n; ++i) {
    const double width = ratio(state[n + i] - state[n + i + 1], negatives);
    area += width * ratio(state[i] + state[i + 1], 2 * positives);
  }
  return area;
}

// Of such a state: from one threshold to the next, true positives are taken to be lost at the same
// rate all along.
double area_under_pr(const State& state) {
  const size_t n = state.size() / 2;
  double area = 0;
  for (size_t i = 0; i + 1 < n; ++i) {
    const double found = state[i] + state[n + i], left = state[i + 1] + state[n + i + 1];
    const double lost = state[i] - state[i + 1], slope = ratio(lost, std::max(found - left, 0.0));
    const double intercept = state[i + 1] - slope * left;
    const double shrinking = found > 0 && left > 0 ? found / left : 1;
    area += ratio(slope * (lost + intercept * std::log(shrinking)), state[0]);
  }
  return area;
}

}  // namespace

Metric BinaryAccuracy(double threshold, std::string name) {
  check_threshold("BinaryAccuracy", threshold);
  return Mean(
      std::move(name),
      [threshold](const Value& y_true, const Value& y_pred) {
        const Value predicted =
            ops::cast(greater_than(as_float(y_pred), threshold), DType::kFloat32);
        return ops::equal(match_prediction(y_true, predicted), predicted);
      },
      Direction::kUp);
}

Metric Precision(double threshold, std::string name) {
  return Precision({.threshold = threshold, .name = std::move(name)});
}

Metric Recall(double threshold, std::string name) {
  return Recall({.threshold = threshold, .name = std::move(name)});
}

Metric Precision(const ClassFilter& filter) {
  check_filter("Precision", filter);
  return Metric(
      filter.name.empty() ? "precision" : filter.name,
      [filter](const Value& y_true, const Value& y_pred, const Value& weights) {
        const auto [all, found] = find(filter, y_true, y_pred, weights);
        const Value positive = all.weight * found;
        return std::vector<Value>{ops::reduce_sum(positive * all.target),
                                  ops::reduce_sum(positive * (1.0 - all.target))};
      },
      share_of_first, Direction::kUp);
}

Metric Recall(const ClassFilter& filter) {
  check_filter("Recall", filter);
  return Metric(
      filter.name.empty() ? "recall" : filter.name,
      [filter](const Value& y_true, const Value& y_pred, const Value& weights) {
        const auto [all, found] = find(filter, y_true, y_pred, weights);
        const Value positive = all.weight * all.target;
        return std::vector<Value>{ops::reduce_sum(positive * found),
                                  ops::reduce_sum(positive * (1.0 - found))};
      },
      share_of_first, Direction::kUp);
}

Metric AUC(const AucOptions& options) {
  if (options.num_thresholds < 2)
    invalid("AUC: num_thresholds must be at least 2, got ", options.num_thresholds);
  const auto update = [options](const Value& y_true, const Value& y_pred, const Value& weights) {
    Binary b = binary(y_true, y_pred, weights);
    const std::vector<double> values = auc_thresholds(options.num_thresholds);
    b.predicted = options.from_logits ? ops::sigmoid(b.predicted)
                                      : require_probabilities(b.predicted, "from_logits");
    const Tensor thresholds = Tensor::from(values, {options.num_thresholds, 1});
    // [thresholds, n] and [n, 1]: the sums over all elements are matrix products.
    const Value positive =
        ops::cast(ops::greater(b.predicted, ops::constant(thresholds.cast(b.predicted.dtype()))),
                  b.weight.dtype());
    const auto total = [&](const Value& x) {
      return ops::matmul(positive, ops::expand_dims(x, 1));
    };
    return std::vector<Value>{total(b.weight * b.target), total(b.weight * (1.0 - b.target))};
  };
  return Metric(
      options.name, update,
      [options](const State& state) {
        require_size(state, 2 * static_cast<size_t>(options.num_thresholds));
        return options.curve == Curve::kROC ? area_under_roc(state) : area_under_pr(state);
      },
      Direction::kUp);
}

}  // namespace cohort::metrics
