#include "core/train/stepper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/base/comma_separated.h"
#include "core/base/random.h"
#include "core/distribute/replica_context.h"
#include "core/nn/added_losses.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"

namespace cohort {
namespace {

// One flat float64 vector of everything a metric adds.
Value pack(const std::vector<Value>& increments) {
  std::vector<Value> flat;
  for (const Value& value : increments)
    flat.push_back(ops::reshape(ops::cast(value, DType::kFloat64), {-1}));
  return flat.size() == 1 ? flat.front() : ops::concat(flat, 0);
}

// The sum over all replicas of what they divide by; where it is 0, there is nothing to divide.
Value sum_or_infinity(const Value& divisor) {
  const Value sum = get_replica_context()->all_reduce(ReduceOp::kSum, divisor);
  const Value infinity = ops::constant(std::numeric_limits<double>::infinity(), sum.dtype());
  return ops::where(ops::equal(sum, ops::constant(0, sum.dtype())), infinity, sum);
}

// The sum, in the wider dtype, of a loss and another one, where there is one so far.
Value plus(const Value& sum, const Value& loss) {
  if (!sum.defined()) return loss;
  const bool is_wider = dtype_size(loss.dtype()) > dtype_size(sum.dtype());
  const DType dtype = is_wider ? loss.dtype() : sum.dtype();
  return ops::cast(sum, dtype) + ops::cast(loss, dtype);
}

Stepper::Rows rows_of(const Value& batch) {
  Stepper::Rows rows{.own = batch.shape()[0]};
  for (const Shape& shape : shapes_on_replicas(batch)) rows.global += shape[0];
  return rows;
}

Value count_of(const Stepper::Rows& rows) {
  return ops::constant(Tensor::scalar(static_cast<double>(rows.own)));
}

// What these rows have of the loss of the global batch.
Value share_of_loss(const losses::Loss& loss, const Value& label, const Value& predicted,
                    const Value& weights, const Stepper::Rows& rows) {
  Value sum = ops::reduce_sum(loss.per_example(label, predicted, weights));
  if (const Value divisor = loss.divisor(label, predicted, weights); divisor.defined())
    return sum / ops::cast(sum_or_infinity(divisor), sum.dtype());
  if (loss.reduction() == losses::Reduction::kSum) return sum;
  return sum / static_cast<double>(std::max<int64_t>(rows.global, 1));
}

// A replica's part of the mean over all rows, where `mean` is that over its own.
Value share_of_mean(const Value& mean, const Stepper::Rows& rows) {
  if (rows.own > 0)
    return mean * (static_cast<double>(rows.own) / static_cast<double>(rows.global));
  // Of no rows it may be no number.
  return ops::where(ops::constant(Tensor::scalar(false)), mean, ops::constant(0, mean.dtype()));
}

// The mean by rows of an output's losses of batches, which are not computed by it.
metrics::Metric mean_loss(const std::string& output) {
  const auto result = [](const metrics::State& sums) {
    if (sums.size() != 2)
      fail(Code::kFailedPrecondition, "the loss of an output has 2 sums, got ", sums.size());
    return sums[1] > 0 ? sums[0] / sums[1] : 0;
  };
  return {result_of(output, "loss"), {}, result, metrics::Direction::kDown};
}

std::vector<std::string> output_names_of(const nn::Layer& network) {
  std::vector<std::string> names = network.output_names();
  if (names.size() == 1) return {""};
  if (std::find(names.begin(), names.end(), "") != names.end())
    fail(Code::kFailedPrecondition,
         "compile: the outputs of the network have no names yet: call build() first");
  return names;
}

// What `work` returns; its errors begin with the context, if any.
template <typename Work>
auto in_context(const std::string& context, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw context.empty() ? error : error.with_context(context);
  }
}
template <typename Work>
auto for_metric(const metrics::Metric& metric, const Work& work) {
  return in_context(str("metric ", metric.name()), work);
}

// The class of each row by labels that are its number, as Keras rounds it, or a value for each
// class, of which the first that is largest counts.
std::vector<int64_t> classes_of(const Tensor& label, int64_t rows) {
  const Shape& shape = label.shape();
  if (shape.rank() == 0 || shape.rank() > 2 || shape.dim(0) != rows ||
      (shape.rank() == 2 && shape.dim(1) == 0))
    invalid("class_weight needs a label or a value for each class a row, [", rows, "] or [", rows,
            ",classes], got ", label.spec());
  const int64_t values = shape.rank() == 1 ? 1 : shape.dim(1);
  const Tensor numbers = label.cast(DType::kFloat64);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = numbers.data<double>() + i * values;
    if (values > 1)
      classes.push_back(std::max_element(row, row + values) - row);
    else
      classes.push_back(std::abs(*row) < 0x1p62 ? std::llrint(*row) : -1);  // NaN is none either
  }
  return classes;
}

}  // namespace

std::vector<Tensor> features_of(const data::Batch& batch) {
  std::vector<Tensor> features;
  for (const data::Field& field : batch) {
    if (!is_target(field.name)) features.push_back(field.tensor);
  }
  if (features.empty())
    invalid("the batch ", batch, " has no input for the network besides label and weight");
  return features;
}

Stepper::Stepper(nn::Layer network, Strategy& strategy, CompileOptions options)
    : network_(std::move(network)),
      strategy_(strategy),
      options_(std::move(options)),
      outputs_(output_names_of(network_)),
      objectives_(objectives_of(options_, outputs_)),
      train_([this](const std::vector<Value>& inputs) { return trace(inputs, true); },
             "train_step"),
      test_([this](const std::vector<Value>& inputs) { return trace(inputs, false); },
            "test_step") {
  for (const Objective& each : objectives_) {
    if (each.loss && !each.name.empty()) add_metric(mean_loss(each.name), false);
    for (const metrics::Metric& metric : each.metrics) add_metric(metric, false);
    for (const metrics::Metric& metric : each.weighted_metrics) add_metric(metric, true);
  }
  std::set<std::string> taken = {"loss", str(kValidationPrefix, "loss")};
  for (const metrics::Metric& metric : metrics_)
    for (const std::string& name : {metric.name(), str(kValidationPrefix, metric.name())})
      if (!taken.insert(name).second)
        invalid("compile: two results would be named \"", name, "\"; give the metric \"",
                metric.name(), "\" another name");
}

void Stepper::add_metric(metrics::Metric metric, bool is_weighted) {
  metrics_.push_back(std::move(metric));
  is_weighted_.push_back(is_weighted);
}

void Stepper::begin() {
  const auto scope = strategy_.scope();
  options_.optimizer.build(network_.trainable_variables());
  find_step();
}

void Stepper::attach() {
  RemoteUpdates* const remote = strategy_.remote_updates();
  if (remote == nullptr) return;
  auto apart = network_.trainable_variables();
  std::erase_if(apart, [&](const auto& variable) { return remote->is_attached(variable); });
  if (apart.empty()) return;
  const auto scope = strategy_.scope();
  options_.optimizer.build(apart);
}

void Stepper::find_step() {
  step_ = static_cast<int64_t>(options_.optimizer.iterations()->value().item());
}

std::vector<Value> Stepper::trace(const std::vector<Value>& inputs, bool training) const {
  const Rows rows = rows_of(inputs.back());
  // A worker on its own may have none at the end, when others still step.
  if (rows.global == 0 && !strategy_.input_context().independent) invalid("the batch has no rows");
  const auto targets = inputs.end() - 2 * std::ssize(objectives_);
  const std::vector<Value> features(inputs.begin(), targets);
  const nn::AddedLosses added;
  const std::vector<Value> predictions = network_.outputs(features, {.training = training});
  std::vector<Value> results;
  Value loss = measure(predictions, {targets, inputs.end()}, rows, results);
  for (const Value& mean : added.values()) loss = plus(loss, share_of_mean(mean, rows));
  if (!loss.defined()) invalid("there is no loss: compile() was given none, and no layer adds one");
  if (const Value penalty = network_.regularization_loss(); penalty.defined()) {
    loss = loss + ops::cast(penalty, loss.dtype()) / strategy_.num_replicas_in_sync();
  }
  results.insert(results.begin(), pack({loss, count_of(rows)}));
  if (strategy_.workers().size() > 1) results = ops::all_reduce_async(results, ReduceOp::kSum);
  if (training)
    options_.optimizer.minimize(loss, network_.trainable_variables(),
                                weight(predictions, {targets, inputs.end()}, rows));
  return results;
}

// What the loss has been divided by: of several losses the rows, and sums have not been.
Value Stepper::weight(const std::vector<Value>& predictions, std::span<const Value> targets,
                      const Rows& rows) const {
  const RemoteUpdates* const remote = strategy_.remote_updates();
  if (remote == nullptr || !remote->waits_for_others()) return {};
  const Objective& first = objectives_.front();
  if (objectives_.size() == 1 && first.loss) {
    if (first.loss->reduction() == losses::Reduction::kSum) return {};
    const Value divisor = first.loss->divisor(targets[0], predictions[first.output], targets[1]);
    if (divisor.defined())
      return ops::cast(get_replica_context()->all_reduce(ReduceOp::kSum, divisor), DType::kFloat64);
  }
  return ops::constant(Tensor::scalar(static_cast<double>(rows.global)));
}

Value Stepper::measure(const std::vector<Value>& predictions, std::span<const Value> targets,
                       const Rows& rows, std::vector<Value>& increments) const {
  Value loss;
  for (size_t i = 0; i < objectives_.size(); ++i) {
    const Objective& each = objectives_[i];
    const Value &label = targets[2 * i], &weights = targets[2 * i + 1],
                &predicted = predictions[each.output];
    if (each.loss) {
      const Value share =
          in_context(each.name.empty() ? "" : str("output \"", each.name, '"'),
                     [&] { return share_of_loss(*each.loss, label, predicted, weights, rows); });
      loss = plus(loss, each.loss_weight == 1 ? share : share * each.loss_weight);
      if (!each.name.empty())
        increments.push_back(
            pack({ops::cast(share, DType::kFloat64) * static_cast<double>(rows.global),
                  count_of(rows)}));
    }
    for (const metrics::Metric& metric : each.metrics)
      increments.push_back(pack(metric.increments(label, predicted)));
    for (const metrics::Metric& metric : each.weighted_metrics)
      increments.push_back(pack(metric.increments(label, predicted, weights)));
  }
  return loss;
}

void Stepper::train(const data::DistributedBatch& batch, const ClassWeight& class_weight,
                    Totals& totals) {
  RemoteUpdates* const remote = strategy_.remote_updates();
  if (remote != nullptr && batch.rows() == 0 && !remote->waits_for_others()) {
    totals.metrics.resize(metrics_.size());
    return remote->skip_step();
  }
  run(train_, batch, step_++, class_weight, totals);
}

void Stepper::test(const data::DistributedBatch& batch, Totals& totals) {
  run(test_, batch, tested_++, {}, totals);
}

void Stepper::run(const Function& function, const data::DistributedBatch& batch, int64_t step,
                  const ClassWeight& class_weight, Totals& totals) {
  PerReplica<std::vector<Tensor>> inputs(batch.size());
  for (size_t r = 0; r < batch.size(); ++r) inputs[r] = inputs_of(batch[r], class_weight);
  const auto results = strategy_.run(function, inputs,
                                     {.seed = global_seed(),
                                      .step = step,
                                      .precision = options_.precision,
                                      .contents = comma_separated(batch[0].names())});
  add_up(results, totals);
}

void Stepper::add_up(const PerReplica<std::vector<Tensor>>& results, Totals& totals) const {
  totals.metrics.resize(metrics_.size());
  double loss = 0, rows = 0;
  for (const std::vector<Tensor>& result : results) {
    loss += result[0].data<double>()[0];
    rows += result[0].data<double>()[1];
    for (size_t i = 0; i < totals.metrics.size(); ++i)
      for_metric(metrics_[i], [&] { metrics::accumulate(totals.metrics[i], {&result[i + 1], 1}); });
    if (strategy_.workers().size() > 1) break;  // each has the sums of all
  }
  totals.loss += loss * rows;
  totals.rows += static_cast<int64_t>(rows);
}

std::vector<Tensor> Stepper::inputs_of(const data::Batch& batch, const ClassWeight& class_weight) {
  require_known_targets(batch);
  if (!class_weight.empty() && outputs_.size() > 1)
    invalid("class_weight is for models of one output, and this one has ", in_words(outputs_),
            ": give weights to the rows of each, \"", weight_of(outputs_.front()), '"');
  std::vector<Tensor> inputs = features_of(batch);
  for (const Objective& each : objectives_) {
    const Tensor& label = batch[label_of(each.name)];
    inputs.push_back(label);
    inputs.push_back(weights_of(batch, each.name, label, class_weight));
  }
  return inputs;
}

void Stepper::require_known_targets(const data::Batch& batch) const {
  for (const data::Field& field : batch) {
    const auto is_of = [&](const std::string& output) {
      return field.name == label_of(output) || field.name == weight_of(output);
    };
    const bool is_known = field.name == weight_of("") || !is_target(field.name) ||
                          std::any_of(outputs_.begin(), outputs_.end(), is_of);
    if (!is_known)
      invalid("the batch ", batch, " has \"", field.name, "\", and the model has ",
              in_words(outputs_), ", whose labels are named \"", label_of(outputs_.front()), '"');
  }
}

void Stepper::require_class_columns(const data::Batch& batch, const Tensor& label) {
  if (!output_) {
    std::vector<TensorSpec> inputs;
    for (const Tensor& feature : features_of(batch))
      inputs.push_back({feature.dtype(), feature.shape().with_dim(0, 1)});
    const auto scope = strategy_.scope();
    const Shape shape = network_.output_spec(inputs).shape;
    output_ = shape.rank() > 0 ? shape.without_axis(0) : shape;
  }
  if (*output_ != label.shape().without_axis(0))
    invalid(
        "class_weight needs a label a row, or a value for each class that the network predicts; "
        "its output for a row is ",
        *output_, ", and the labels are ", label.spec(), ": give weights to rows instead");
}

Tensor Stepper::weights_of(const data::Batch& batch, const std::string& output, const Tensor& label,
                           const ClassWeight& class_weight) {
  const int64_t rows = batch.rows();
  const Tensor* given = batch.find(weight_of(output));
  if (given == nullptr) given = batch.find(weight_of(""));
  if (given == nullptr && class_weight.empty()) {
    if (!ones_.defined() || ones_.num_elements() < rows)
      ones_ = Tensor::full(DType::kFloat32, {rows}, 1);
    return ones_.slice_rows(0, rows);
  }
  Tensor weights =
      given ? given->cast(DType::kFloat32).clone() : Tensor::full(DType::kFloat32, {rows}, 1);
  if (weights.shape().without_axis(0).num_elements() == 1) weights = weights.reshape({rows});
  if (class_weight.empty()) return weights;
  if (weights.shape().rank() > 1)
    invalid("class_weight is for weights of rows, [", rows, "], and these are ", weights.spec(),
            ": multiply each by the factor of its own label's class");
  const std::vector<int64_t> classes = classes_of(label, rows);
  if (label.shape().rank() == 2 && label.shape().dim(1) > 1) require_class_columns(batch, label);
  for (int64_t i = 0; i < rows; ++i) {
    const auto factor = class_weight.find(classes[static_cast<size_t>(i)]);
    if (factor != class_weight.end())
      weights.data<float>()[i] *= static_cast<float>(factor->second);
  }
  return weights;
}

FunctionMemory Stepper::memory() const {
  FunctionMemory all = train_.memory();
  return all += test_.memory();
}

Logs Stepper::logs(const Totals& totals) const {
  Logs logs{{"loss", totals.rows > 0 ? totals.loss / static_cast<double>(totals.rows) : 0}};
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const metrics::State none;
    logs[metrics_[i].name()] = for_metric(metrics_[i], [&] {
      return metrics_[i].result(i < totals.metrics.size() ? totals.metrics[i] : none);
    });
  }
  return logs;
}

}  // namespace cohort
