#include "core/nn/metrics.h"

#include <string_view>

#include "core/distribute/strategy.h"
#include "core/nn/losses.h"
#include "core/nn/metric_helpers.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::metrics {
namespace {

using losses::match_labels;
using losses::match_prediction;
using losses::weighted;
using losses::widened;

// The means over all axes from `axis` on.
Value means_from(int axis, const Value& x) {
  return x.shape().rank() > axis ? ops::reduce_mean(ops::flatten_from(x, axis), {axis}) : x;
}

Value difference(const Value& y_true, const Value& y_pred) {
  const Value predicted = widened(y_pred);
  return predicted - match_prediction(y_true, predicted);
}

// Means that are better the higher, or the lower, they are.
using RowFunction = std::function<Value(const Value& y_true, const Value& y_pred)>;
Metric rising_mean(std::string name, RowFunction function) {
  return Mean(std::move(name), std::move(function), Direction::kUp);
}
Metric falling_mean(std::string name, RowFunction function) {
  return Mean(std::move(name), std::move(function), Direction::kDown);
}

// state[0] / state[1]
double quotient(const State& state) {
  require_size(state, 2);
  return ratio(state[0], state[1]);
}

void check_k(std::string_view metric, int64_t k) {
  if (k < 1) invalid(metric, ": k must be at least 1, got ", k);
}

// 1 where the label is among the classes of the k highest predictions, else 0.
Value is_among_best(const Value& labels, const Value& y_pred, int64_t k) {
  const Value best = best_classes(y_pred, k);
  const Value label = ops::expand_dims(ops::cast(labels, best.dtype()), -1);
  return ops::reduce_max(ops::cast(ops::equal(best, label), DType::kFloat32), {-1});
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
