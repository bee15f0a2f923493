#include "core/nn/losses.h"

#include <algorithm>

#include "core/distribute/replica_context.h"
#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"

namespace cohort::losses {
namespace {

// Keras' fuzz factor, which keeps probabilities away from log(0).
// It is 0 beside 1 in 16 bits.
constexpr double kEpsilon = 1e-7;

Value clip_probabilities(const Value& p) { return ops::clip(p, kEpsilon, 1 - kEpsilon); }

// The argument, in x's dtype, of the op of that name which gave `x`, or what `x` was cast from; or
// none: from probabilities back to exact logits.
Value argument_of(const char* op, const Value& x) {
  const Node& node = x.node();
  const Node& source = node.op().name == "Cast" ? node.inputs()[0].node() : node;
  return source.op().name == op ? ops::cast(source.inputs()[0], x.dtype()) : Value();
}

// Logits that are known exactly (up to a constant for each row), or none.
Value known_logits(const Value& y_pred, bool from_logits) {
  return from_logits ? y_pred : argument_of("Softmax", y_pred);
}

Value logits_of_probabilities(const Value& p) { return ops::log(clip_probabilities(p)); }

// Logits of the prediction for class numbers, which Keras does not divide by its sum.
Value sparse_logits_of(const Value& y_pred, bool from_logits) {
  const Value known = known_logits(y_pred, from_logits);
  return known.defined() ? known : logits_of_probabilities(y_pred);
}

// Logits of the prediction for distributions.
Value logits_of(const Value& y_pred, bool from_logits) {
  if (const Value known = known_logits(y_pred, from_logits); known.defined()) return known;
  return logits_of_probabilities(y_pred / ops::reduce_sum(y_pred, {-1}, true));
}

// Targets moved by `smoothing` towards `uniform`.
Value smoothed(const Value& targets, double smoothing, double uniform) {
  return smoothing > 0 ? targets * (1 - smoothing) + smoothing * uniform : targets;
}

void check_smoothing(const char* loss, double smoothing) {
  if (!(smoothing >= 0 && smoothing < 1))
    invalid(loss, ": label_smoothing must be in [0, 1), got ", smoothing);
}

Value binary_crossentropy(const Value& targets, const Value& y_pred, bool from_logits) {
  const Value logits = from_logits ? y_pred : argument_of("Sigmoid", y_pred);
  if (logits.defined()) return ops::sigmoid_cross_entropy(logits, targets);
  const Value p = clip_probabilities(y_pred);
  return -(targets * ops::log(p) + (1.0 - targets) * ops::log(1.0 - p));
}

// The mean of `function`(targets, predictions) over the last axis.
template <typename F>
Loss last_axis_mean(std::string name, Reduction reduction, F function) {
  return Loss(
      std::move(name),
      [function](const Value& y_true, const Value& y_pred) {
        const Value loss = function(match_prediction(y_true, y_pred), y_pred);
        return loss.shape().rank() > 1 ? ops::reduce_mean(loss, {-1}) : loss;
      },
      reduction);
}

bool ends_with_one(const Shape& shape) { return shape.rank() > 0 && shape.dim(-1) == 1; }

int64_t rows_of_all_replicas(const Value& per_example) {
  const ReplicaContext* replica = get_replica_context();
  if (replica == nullptr)
    fail(Code::kFailedPrecondition,
         "compute_average_loss outside a replica does not know the rows of all replicas: give it "
         "the global_batch_size, or call it in a function given to run");
  return replica->global_extent(per_example);
}

bool begins_with(const Shape& shape, const Shape& front) {
  return front.rank() <= shape.rank() && std::equal(front.begin(), front.end(), shape.begin());
}

}  // namespace

Value compute_average_loss(const Value& per_example, const AverageLossOptions& options) {
  if (per_example.shape().rank() == 0)
    invalid("compute_average_loss takes one loss a row, got ", per_example.spec());
  const int64_t rows =
      options.global_batch_size ? *options.global_batch_size : rows_of_all_replicas(per_example);
  if (rows < 0) invalid("compute_average_loss: global_batch_size must not be negative, got ", rows);
  const Value sum = ops::reduce_sum(
      options.sample_weight.defined() ? weighted(per_example, options.sample_weight) : per_example);
  if (rows > 0) return sum / static_cast<double>(rows);
  return ops::where(ops::constant(Tensor::scalar(false)), sum, ops::constant(0, sum.dtype()));
}

// What `work` returns; its errors name the loss and both specs.
template <typename Work>
auto Loss::named(const Value& y_true, const Value& y_pred, const Work& work) const {
  try {
    if (y_pred.shape().rank() == 0) invalid("y_pred needs a batch axis");
    if (!function_) invalid("its function is empty");
    const NameScope scope(name_);
    return work();
  } catch (const Error& error) {
    throw error.with_context(
        str("loss ", name_, " of y_true ", y_true.spec(), " and y_pred ", y_pred.spec()));
  }
}

// [rows, ..] as [rows], each by its weight, if any.
Value Loss::reduced(const Value& parts, const Value& weight) const {
  const auto reduced_from = [&](int axis, const Value& x) {
    if (x.shape().rank() <= axis) return x;
    const Value flat = ops::flatten_from(x, axis);
    return reduction_ == Reduction::kSum ? ops::reduce_sum(flat, {axis})
                                         : ops::reduce_mean(flat, {axis});
  };
  if (!weight.defined()) return reduced_from(1, parts);
  return reduced_from(1, weighted(reduced_from(std::max(1, weight.shape().rank()), parts), weight));
}

Value Loss::per_example(const Value& y_true, const Value& y_pred,
                        const Value& sample_weight) const {
  return named(y_true, y_pred, [&] {
    const Value loss = function_(widened(y_true), widened(y_pred));
    if (loss.shape().rank() == 0 || loss.shape()[0] != y_pred.shape()[0])
      invalid("the loss function returned ", loss.spec(), ", not one value a row");
    return reduced(loss, sample_weight);
  });
}

Value Loss::divisor(const Value& y_true, const Value& y_pred, const Value& sample_weight) const {
  const bool by_weight = reduction_ == Reduction::kMeanWithSampleWeight && sample_weight.defined();
  if (reduction_ == Reduction::kSum || !(counted_ || by_weight)) return {};
  return named(y_true, y_pred, [&] {
    const Value counted =
        counted_ ? counted_(widened(y_true), widened(y_pred))
                 : ops::constant(Tensor::full(DType::kFloat32, sample_weight.shape(), 1));
    return ops::reduce_sum(reduced(counted, by_weight ? sample_weight : Value()));
  });
}

Loss SparseCategoricalCrossentropy(const SparseClassificationOptions& options) {
  constexpr const char* kName = "SparseCategoricalCrossentropy";
  check_smoothing(kName, options.label_smoothing);
  const auto loss = [from_logits = options.from_logits, smoothing = options.label_smoothing](
                        const Value& labels, const Value& y_pred) {
    const Value logits = sparse_logits_of(y_pred, from_logits);
    const Value at_label = sparse_softmax_cross_entropy(logits, labels);
    if (smoothing == 0) return at_label;
    return at_label * (1 - smoothing) -
           ops::reduce_mean(ops::log_softmax(logits), {-1}) * smoothing;
  };
  if (!options.ignore_class) return Loss(kName, loss, options.reduction);
  const auto is_counted = [ignored = *options.ignore_class](const Value& labels) {
    return ops::not_equal(labels, ops::constant(Tensor::scalar(ignored)));
  };
  const auto labels_of = [](const Value& y_true, const Value& y_pred) {
    return ops::cast(match_labels(y_true, y_pred), DType::kInt64);
  };
  return Loss(
      kName,
      [=](const Value& y_true, const Value& y_pred) {
        const Value labels = labels_of(y_true, y_pred), counted = is_counted(labels);
        const Value all =
            loss(ops::where(counted, labels, ops::constant(0, DType::kInt64)), y_pred);
        return ops::where(counted, all, ops::constant(0, all.dtype()));
      },
      options.reduction,
      [=](const Value& y_true, const Value& y_pred) {
        return ops::cast(is_counted(labels_of(y_true, y_pred)), DType::kFloat32);
      });
}

Loss CategoricalCrossentropy(const ClassificationOptions& options) {
  check_smoothing("CategoricalCrossentropy", options.label_smoothing);
  return Loss(
      "CategoricalCrossentropy",
      [options](const Value& y_true, const Value& y_pred) {
        const Value targets = match_prediction(y_true, y_pred);
        const double uniform = 1.0 / static_cast<double>(y_pred.shape().dim(-1));
        return ops::softmax_cross_entropy(logits_of(y_pred, options.from_logits),
                                          smoothed(targets, options.label_smoothing, uniform));
      },
      options.reduction);
}

Loss BinaryCrossentropy(const ClassificationOptions& options) {
  check_smoothing("BinaryCrossentropy", options.label_smoothing);
  return last_axis_mean("BinaryCrossentropy", options.reduction,
                        [options](const Value& y, const Value& y_pred) {
                          return binary_crossentropy(smoothed(y, options.label_smoothing, 0.5),
                                                     y_pred, options.from_logits);
                        });
}

Loss MeanSquaredError(const RegressionOptions& options) {
  return last_axis_mean(
      "MeanSquaredError", options.reduction,
      [](const Value& y, const Value& y_pred) { return ops::square(y_pred - y); });
}

Loss MeanAbsoluteError(const RegressionOptions& options) {
  return last_axis_mean("MeanAbsoluteError", options.reduction,
                        [](const Value& y, const Value& y_pred) { return ops::abs(y_pred - y); });
}

Loss Huber(double delta, const RegressionOptions& options) {
  if (!(delta > 0)) invalid("Huber: delta must be positive, got ", delta);
  return last_axis_mean("Huber", options.reduction, [delta](const Value& y, const Value& y_pred) {
    const Value error = ops::abs(y_pred - y);
    return ops::where(ops::less_equal(error, ops::constant(delta, error.dtype())),
                      ops::square(error) * 0.5, error * delta - delta * delta / 2);
  });
}

Loss KLDivergence(const RegressionOptions& options) {
  return Loss(
      "KLDivergence",
      [](const Value& y_true, const Value& y_pred) {
        const Value p = ops::clip(match_prediction(y_true, y_pred), kEpsilon, 1);
        const Value q = ops::clip(y_pred, kEpsilon, 1);
        return ops::reduce_sum(p * ops::log(p / q), {-1});
      },
      options.reduction);
}

Value sparse_softmax_cross_entropy(const Value& logits, const Value& labels) {
  return ops::sparse_softmax_cross_entropy(logits, match_labels(labels, logits));
}

Value weighted(const Value& values, const Value& sample_weight) {
  const Shape &shape = values.shape(), &given = sample_weight.shape();
  if (!begins_with(shape, given)) {
    invalid("a sample_weight of shape ", given, " does not fit values of shape ", shape,
            "; expected one a row, [", shape.dim(0), "]",
            shape.rank() > 1 ? str(", or one a value, ", shape) : "");
  }
  std::vector<int64_t> dims = given.to_vector();
  dims.resize(static_cast<size_t>(shape.rank()), 1);
  return values * ops::cast(ops::reshape(sample_weight, dims), values.dtype());
}

Value widened(const Value& x) { return is_half(x.dtype()) ? ops::cast(x, DType::kFloat32) : x; }

Value match_prediction(const Value& y_true, const Value& y_pred) {
  const Shape &wanted = y_pred.shape(), &given = y_true.shape();
  const bool lacks_last = wanted.rank() > 0 && given == wanted.without_axis(wanted.rank() - 1);
  const bool lacks_one = lacks_last && ends_with_one(wanted);
  const bool has_one_more = ends_with_one(given) && given.without_axis(given.rank() - 1) == wanted;
  if (given != wanted && !lacks_one && !has_one_more)
    invalid("y_true has shape ", given, ", y_pred has shape ", wanted, "; they must be equal",
            lacks_last ? " (class numbers are for the losses and metrics named Sparse..)" : "");
  return ops::cast(ops::reshape(y_true, wanted.to_vector()), y_pred.dtype());
}

Value match_labels(const Value& labels, const Value& y_pred) {
  if (y_pred.shape().rank() < 2)
    invalid("y_pred needs shape [rows, .., classes], got ", y_pred.shape());
  const Shape wanted = y_pred.shape().without_axis(y_pred.shape().rank() - 1);
  const Shape& given = labels.shape();
  const bool has_one_more = ends_with_one(given) && given.without_axis(given.rank() - 1) == wanted;
  if (given != wanted && !has_one_more)
    invalid("class numbers of shape ", given, " do not fit predictions of shape ", y_pred.shape(),
            "; they need shape ", wanted,
            given == y_pred.shape()
                ? " (distributions are for the losses and metrics without Sparse.. in their names)"
                : "");
  const Value classes = ops::reshape(labels, wanted.to_vector());
  const bool index = classes.dtype() == DType::kInt32 || classes.dtype() == DType::kInt64;
  if (index) return classes;
  // NaN, which a cast makes 0, is no class.
  const Value known =
      is_floating(classes.dtype())
          ? ops::where(ops::equal(classes, classes), classes, ops::constant(-1, classes.dtype()))
          : classes;
  return ops::cast(known, DType::kInt64);
}

}  // namespace cohort::losses
