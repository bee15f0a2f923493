#include "core/nn/metrics.h"

#include <algorithm>
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
          flat(weights ? weighted(one, weights) : one)};
}

// Sums may be from a file, and then of another metric of the same name.
void require_size(const State& state, size_t size) {
  if (state.size() != size)
    fail(Code::kFailedPrecondition, "a metric has ", state.size(),
         " sums so far, and a batch adds to ", size,
         ": they are not of the same metric with the same options");
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

}  // namespace

std::vector<Value> Metric::increments(const Value& y_true, const Value& y_pred,
                                      const Value& weights) const {
  try {
    const NameScope scope(name_);
    if (y_pred.shape().rank() == 0) invalid("y_pred needs a batch axis");
    if (weights && (weights.shape().rank() == 0 || weights.shape()[0] != y_pred.shape()[0]))
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
        const Value means = means_from(weights ? weights.shape().rank() : 1, values);
        if (weights)
          return std::vector<Value>{ops::reduce_sum(weighted(means, weights)),
                                    ops::reduce_sum(as_float(weights))};
        const auto count = static_cast<double>(means.shape()[0]);
        return std::vector<Value>{ops::reduce_sum(means), ops::constant(count, DType::kFloat32)};
      },
      [](const State& state) {
        require_size(state, 2);
        return ratio(state[0], state[1]);
      },
      direction);
}

Metric SparseCategoricalAccuracy(std::string name) {
  return rising_mean(std::move(name), [](const Value& y_true, const Value& y_pred) {
    return ops::equal(ops::cast(match_labels(y_true, y_pred), DType::kInt64), ops::argmax(y_pred));
  });
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
  if (k < 1) invalid("SparseTopKCategoricalAccuracy: k must be at least 1, got ", k);
  return rising_mean(std::move(name), [k](const Value& y_true, const Value& y_pred) {
    const Value best = ops::top_k(y_pred, std::min(k, y_pred.shape().dim(-1))).indices;
    const Value label = ops::expand_dims(ops::cast(match_labels(y_true, y_pred), best.dtype()), -1);
    return ops::reduce_max(ops::cast(ops::equal(best, label), DType::kFloat32), {-1});
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
  check_threshold("Precision", threshold);
  return Metric(
      std::move(name),
      [threshold](const Value& y_true, const Value& y_pred, const Value& weights) {
        const Binary b = binary(y_true, y_pred, weights);
        const Value positive = b.weight * found_by(b.predicted, threshold);
        return std::vector<Value>{ops::reduce_sum(positive * b.target),
                                  ops::reduce_sum(positive * (1.0 - b.target))};
      },
      share_of_first, Direction::kUp);
}

Metric Recall(double threshold, std::string name) {
  check_threshold("Recall", threshold);
  return Metric(
      std::move(name),
      [threshold](const Value& y_true, const Value& y_pred, const Value& weights) {
        const Binary b = binary(y_true, y_pred, weights);
        const Value found = found_by(b.predicted, threshold);
        const Value positive = b.weight * b.target;
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
        return area_under_roc(state);
      },
      Direction::kUp);
}

}  // namespace cohort::metrics
