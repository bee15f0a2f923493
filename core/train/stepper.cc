#include "core/train/stepper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/base/random.h"
#include "core/distribute/replica_context.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"

namespace cohort {
namespace {

Value as(DType dtype, const Value& x) { return x.dtype() == dtype ? x : ops::cast(x, dtype); }

// One flat float64 vector of everything a metric adds.
Value pack(const std::vector<Value>& increments) {
  std::vector<Value> flat;
  for (const Value& value : increments)
    flat.push_back(ops::reshape(as(DType::kFloat64, value), {-1}));
  return flat.size() == 1 ? flat.front() : ops::concat(flat, 0);
}

// The sum over all replicas of what they divide by; where it is 0, there is nothing to divide.
Value sum_or_infinity(const Value& divisor) {
  const Value sum = get_replica_context()->all_reduce(ReduceOp::kSum, divisor);
  const Value infinity = ops::constant(std::numeric_limits<double>::infinity(), sum.dtype());
  return ops::where(ops::equal(sum, ops::constant(0, sum.dtype())), infinity, sum);
}

std::vector<metrics::Metric> metrics_of(const CompileOptions& options) {
  std::vector<metrics::Metric> all = options.metrics;
  all.insert(all.end(), options.weighted_metrics.begin(), options.weighted_metrics.end());
  std::set<std::string> taken = {"loss", str(kValidationPrefix, "loss")};
  for (const metrics::Metric& metric : all) {
    for (const std::string& name : {metric.name(), str(kValidationPrefix, metric.name())}) {
      if (!taken.insert(name).second)
        invalid("compile: two results would be named \"", name, "\"; give the metric \"",
                metric.name(), "\" another name");
    }
  }
  return all;
}

// What `work` returns; its errors name the metric.
template <typename Work>
auto for_metric(const metrics::Metric& metric, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw error.with_context(str("metric ", metric.name()));
  }
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
    if (field.name != "label" && field.name != "weight") features.push_back(field.tensor);
  }
  if (features.empty())
    invalid("the batch ", batch, " has no input for the network besides label and weight");
  return features;
}

Stepper::Stepper(nn::Layer network, Strategy& strategy, CompileOptions options)
    : network_(std::move(network)),
      strategy_(strategy),
      options_(std::move(options)),
      metrics_(metrics_of(options_)),
      train_([this](const std::vector<Value>& inputs) { return trace(inputs, true); },
             "train_step"),
      test_([this](const std::vector<Value>& inputs) { return trace(inputs, false); },
            "test_step") {}

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
  const std::vector<Value> features(inputs.begin(), inputs.end() - 2);
  const Value label = *(inputs.end() - 2), weights = inputs.back();
  int64_t global_rows = 0;
  for (const Shape& shape : shapes_on_replicas(weights)) global_rows += shape[0];
  // A worker on its own may have none at the end, when others still step.
  if (global_rows == 0 && !strategy_.input_context().independent) invalid("the batch has no rows");
  const Value predicted = network_(features, {.training = training});
  Value loss = ops::reduce_sum(options_.loss.per_example(label, predicted, weights));
  if (const Value divisor = options_.loss.divisor(label, predicted, weights); divisor.defined())
    loss = loss / as(loss.dtype(), sum_or_infinity(divisor));
  else if (options_.loss.reduction() != losses::Reduction::kSum)
    loss = loss / static_cast<double>(std::max<int64_t>(global_rows, 1));
  if (const Value penalty = network_.regularization_loss(); penalty.defined()) {
    loss = loss + as(loss.dtype(), penalty) / strategy_.num_replicas_in_sync();
  }
  const Value rows = ops::constant(Tensor::scalar(static_cast<double>(weights.shape()[0])));
  std::vector<Value> outputs = {pack({loss, rows})};
  for (size_t i = 0; i < metrics_.size(); ++i)
    outputs.push_back(
        pack(metrics_[i].increments(label, predicted, is_weighted(i) ? weights : Value())));
  if (strategy_.workers().size() > 1) outputs = ops::all_reduce_async(outputs, ReduceOp::kSum);
  if (training) options_.optimizer.minimize(loss, network_.trainable_variables());
  return outputs;
}

void Stepper::train(const data::DistributedBatch& batch, const ClassWeight& class_weight,
                    Totals& totals) {
  run(train_, batch, step_++, class_weight, totals);
}

void Stepper::test(const data::DistributedBatch& batch, Totals& totals) {
  run(test_, batch, tested_++, {}, totals);
}

void Stepper::run(const Function& function, const data::DistributedBatch& batch, int64_t step,
                  const ClassWeight& class_weight, Totals& totals) {
  PerReplica<std::vector<Tensor>> inputs(batch.size());
  for (size_t r = 0; r < batch.size(); ++r) {
    inputs[r] = features_of(batch[r]);
    const Tensor& label = batch[r]["label"];
    inputs[r].push_back(label);
    inputs[r].push_back(weights_of(batch[r], label, class_weight));
  }
  const auto results = strategy_.run(
      function, inputs, {.seed = global_seed(), .step = step, .precision = options_.precision});
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

Tensor Stepper::weights_of(const data::Batch& batch, const Tensor& label,
                           const ClassWeight& class_weight) {
  const int64_t rows = batch.rows();
  const Tensor* given = batch.find("weight");
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
