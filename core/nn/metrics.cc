#include "core/nn/metrics.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/distribute/strategy.h"
#include "core/nn/losses.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::metrics {
namespace {

using losses::match_labels;
using losses::match_prediction;
using losses::weighted;
using losses::widened;

// numerator / denominator, 0 where there is nothing to divide by.
double ratio(double numerator, double denominator) {
  return denominator != 0 ? numerator / denominator : 0;
}

// The means over all axes from `axis` on.
Value means_from(int axis, const Value& x) {
  return x.shape().rank() > axis ? ops::reduce_mean(ops::flatten_from(x, axis), {axis}) : x;
}

Value as_float(const Value& x) {
  return is_floating(x.dtype()) ? widened(x) : ops::cast(x, DType::kFloat32);
}

Value difference(const Value& y_true, const Value& y_pred) {
  const Value predicted = widened(y_pred);
  return predicted - match_prediction(y_true, predicted);
}

void check_threshold(const char* metric, double threshold) {
  if (!(threshold >= 0 && threshold <= 1))
    invalid(metric, ": the threshold must be in [0, 1], got ", threshold);
}

Value greater_than(const Value& x, double threshold) {
  return ops::greater(x, ops::constant(threshold, x.dtype()));
}

// Means that are better the higher, or the lower, they are.
using RowFunction = std::function<Value(const Value& y_true, const Value& y_pred)>;
Metric rising_mean(std::string name, RowFunction function) {
  return Mean(std::move(name), std::move(function), Direction::kUp);
}
Metric falling_mean(std::string name, RowFunction function) {
  return Mean(std::move(name), std::move(function), Direction::kDown);
}

// The binary metrics look at elements one by one: predictions and targets as [n], and the weight of
// each. A target is 1 where the label is not 0.
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

// Sums may be from a file, and then of another metric of the same name.
void require_size(const State& state, size_t size) {
  if (state.size() != size)
    fail(Code::kFailedPrecondition, "a metric has ", state.size(),
         " sums so far, and a batch adds to ", size,
         ": they are not of the same metric with the same options");
}

// state[0] / state[1]
double quotient(const State& state) {
  require_size(state, 2);
  return ratio(state[0], state[1]);
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

void check_k(std::string_view metric, int64_t k) {
  if (k < 1) invalid(metric, ": k must be at least 1, got ", k);
}

// The classes [.., k] of the highest predictions.
Value best_classes(const Value& y_pred, int64_t k) {
  return ops::top_k(y_pred, std::min(k, y_pred.shape().dim(-1))).indices;
}

// 1 where the label is among them, else 0.
Value is_among_best(const Value& labels, const Value& y_pred, int64_t k) {
  const Value best = best_classes(y_pred, k);
  const Value label = ops::expand_dims(ops::cast(labels, best.dtype()), -1);
  return ops::reduce_max(ops::cast(ops::equal(best, label), DType::kFloat32), {-1});
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

// Of [classes, classes] counts, by label and then by prediction.
double mean_intersection_over_union(const State& counts, size_t classes) {
  require_size(counts, classes * classes);
  double sum = 0, occurring = 0;
  for (size_t c = 0; c < classes; ++c) {
    double either = -counts[c * classes + c];
    for (size_t other = 0; other < classes; ++other)
      either += counts[c * classes + other] + counts[other * classes + c];
    sum += ratio(counts[c * classes + c], either);
    occurring += either > 0 ? 1 : 0;
  }
  return ratio(sum, occurring);
}

// Where labels, of int64, are not the class to ignore.
Value is_counted(const Value& labels, std::optional<int64_t> ignore_class) {
  if (!ignore_class) return ops::constant(Tensor::full(DType::kBool, labels.shape(), 1));
  return ops::not_equal(labels, ops::constant(Tensor::scalar(*ignore_class)));
}

Value is_class(const Value& x, int64_t classes) {
  return ops::logical_and(ops::greater_equal(x, ops::constant(0, x.dtype())),
                          ops::less(x, ops::constant(static_cast<double>(classes), x.dtype())));
}

// How often each label comes with each prediction, [classes * classes], where it is `counted`; both
// are int64.
Value confusion(const Value& labels, const Value& predicted, const Value& counted, int64_t classes,
                const Value& weights) {
  const Value known = ops::logical_and(is_class(labels, classes), is_class(predicted, classes));
  const Value wrong = ops::logical_and(counted, ops::logical_not(known));
  const Value none_wrong =
      ops::equal(ops::reduce_sum(ops::cast(wrong, DType::kInt64)), ops::constant(0, DType::kInt64));
  const Value place = ops::require(labels * static_cast<double>(classes) + predicted, none_wrong,
                                   str("a label or a prediction is no class: there are ", classes));
  const Value index = ops::where(counted, place, ops::constant(-1, place.dtype()));
  const Value one = ops::constant(Tensor::full(DType::kFloat32, index.shape(), 1));
  return ops::scatter_add(ops::flatten_from(index, 0),
                          ops::flatten_from(weights.defined() ? weighted(one, weights) : one, 0),
                          classes * classes);
}

}  // namespace

std::vector<Value> Metric::increments(const Value& y_true, const Value& y_pred,
                                      const Value& weights) const {
  try {
    const NameScope scope(name_);
    if (y_pred.shape().rank() == 0) invalid("y_pred needs a batch axis");
    if (weights.defined() &&
        (weights.shape().rank() == 0 || weights.shape()[0] != y_pred.shape()[0]))
      invalid("weights have shape ", weights.shape(), ", not one or more a row");
    if (!update_ || !result_)
      invalid("its ", update_ ? "result" : "update", " is an empty function");
    std::vector<Value> increments = update_(y_true, y_pred, weights);
    if (increments.empty()) invalid("its update returned no increments");
    return increments;
  } catch (const Error& error) {
    throw error.with_context(
        str("metric ", name_, " of y_true ", y_true.spec(), " and y_pred ", y_pred.spec()));
  }
}

void accumulate(State& state, std::span<const Tensor> increments) {
  size_t size = 0;
  for (const Tensor& t : increments) size += static_cast<size_t>(t.num_elements());
  if (state.empty()) state.resize(size);
  require_size(state, size);
  double* target = state.data();
  for (const Tensor& t : increments) {
    dispatch(FloatTypes{}, t.dtype(), "a metric", [&]<typename T>() {
      for (const T& value : t.values<T>()) *target++ += static_cast<double>(value);
    });
  }
}

void accumulate(State& state, Strategy& strategy, std::span<const PerReplica<Tensor>> increments) {
  std::vector<Tensor> sums;
  for (const PerReplica<Tensor>& parts : increments) {
    PerReplica<Tensor> wide(parts.size());
    for (size_t r = 0; r < parts.size(); ++r) wide[r] = parts[r].cast(DType::kFloat64);
    sums.push_back(strategy.reduce(ReduceOp::kSum, wide));
  }
  accumulate(state, sums);
}

Metric Mean(std::string name, std::function<Value(const Value&, const Value&)> function,
            Direction direction) {
  if (!function) invalid("metric ", name, ": its function is empty");
  return Metric(
      std::move(name),
      [function = std::move(function)](const Value& y_true, const Value& y_pred,
                                       const Value& weights) {
        const Value values = as_float(function(y_true, y_pred));
        if (values.shape().rank() == 0 || values.shape()[0] != y_pred.shape()[0])
          invalid("its function returned ", values.spec(), ", not one value a row");
        const Value means = means_from(weights.defined() ? weights.shape().rank() : 1, values);
        if (weights.defined())
          return std::vector<Value>{ops::reduce_sum(weighted(means, weights)),
                                    ops::reduce_sum(as_float(weights))};
        const auto count = static_cast<double>(means.shape()[0]);
        return std::vector<Value>{ops::reduce_sum(means), ops::constant(count, DType::kFloat32)};
      },
      quotient, direction);
}

Metric SparseCategoricalAccuracy(std::string name, std::optional<int64_t> ignore_class) {
  const auto right = [](const Value& y_true, const Value& y_pred) {
    return ops::equal(ops::cast(match_labels(y_true, y_pred), DType::kInt64), ops::argmax(y_pred));
  };
  if (!ignore_class) return rising_mean(std::move(name), right);
  return Metric(
      std::move(name),
      [=](const Value& y_true, const Value& y_pred, const Value& weights) {
        const Value labels = ops::cast(match_labels(y_true, y_pred), DType::kInt64);
        const Value counted = ops::cast(is_counted(labels, ignore_class), DType::kFloat32);
        const Value weight = weights.defined() ? weighted(counted, weights) : counted;
        return std::vector<Value>{
            ops::reduce_sum(ops::cast(right(y_true, y_pred), DType::kFloat32) * weight),
            ops::reduce_sum(weight)};
      },
      quotient, Direction::kUp);
}

Metric CategoricalAccuracy(std::string name) {
  return rising_mean(std::move(name), [](const Value& y_true, const Value& y_pred) {
    return ops::equal(ops::argmax(match_prediction(y_true, y_pred)), ops::argmax(y_pred));
  });
}

Metric BinaryAccuracy(double threshold, std::string name) {
  check_threshold("BinaryAccuracy", threshold);
  return rising_mean(std::move(name), [threshold](const Value& y_true, const Value& y_pred) {
    const Value predicted = ops::cast(greater_than(as_float(y_pred), threshold), DType::kFloat32);
    return ops::equal(match_prediction(y_true, predicted), predicted);
  });
}

Metric SparseTopKCategoricalAccuracy(int64_t k, std::string name) {
  check_k("SparseTopKCategoricalAccuracy", k);
  return rising_mean(std::move(name), [k](const Value& y_true, const Value& y_pred) {
    return is_among_best(match_labels(y_true, y_pred), y_pred, k);
  });
}

Metric TopKCategoricalAccuracy(int64_t k, std::string name) {
  check_k("TopKCategoricalAccuracy", k);
  return rising_mean(std::move(name), [k](const Value& y_true, const Value& y_pred) {
    return is_among_best(ops::argmax(match_prediction(y_true, y_pred)), y_pred, k);
  });
}

Metric MeanSquaredError(std::string name) {
  return falling_mean(std::move(name), [](const Value& y_true, const Value& y_pred) {
    return ops::square(difference(y_true, y_pred));
  });
}

Metric MeanAbsoluteError(std::string name) {
  return falling_mean(std::move(name), [](const Value& y_true, const Value& y_pred) {
    return ops::abs(difference(y_true, y_pred));
  });
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

Metric MeanIoU(int64_t num_classes, const MeanIoUOptions& options) {
  if (num_classes < 1) invalid("MeanIoU: num_classes must be at least 1, got ", num_classes);
  const auto update = [num_classes, options](const Value& y_true, const Value& y_pred,
                                             const Value& weights) {
    const bool sparse = options.sparse_y_pred;
    if (const int64_t scores = y_pred.shape().dim(-1); !sparse && scores != num_classes)
      invalid("y_pred has ", scores, " classes, not ", num_classes);
    const Value labels = ops::cast(
        sparse ? match_prediction(y_true, y_pred) : match_labels(y_true, y_pred), DType::kInt64);
    const Value predicted = sparse ? ops::cast(y_pred, DType::kInt64) : ops::argmax(y_pred);
    return std::vector<Value>{confusion(labels, predicted, is_counted(labels, options.ignore_class),
                                        num_classes, weights)};
  };
  return Metric(
      options.name, update,
      [num_classes](const State& counts) {
        return mean_intersection_over_union(counts, static_cast<size_t>(num_classes));
      },
      Direction::kUp);
}

}  // namespace cohort::metrics
