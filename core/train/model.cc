#include "core/train/model.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/program.h"
#include "core/base/random.h"
#include "core/train/feed.h"
#include "core/train/model_state.h"
#include "core/train/objective.h"
#include "core/train/stepper.h"
#include "core/train/training.h"

namespace cohort {
namespace {

constexpr int64_t kDefaultBatchSize = 32;

data::Dataset dataset_of(const Tensor& x, const Tensor& y, const std::optional<Tensor>& weight) {
  data::Element tensors{{"x", x}, {"label", y}};
  if (weight) tensors.set("weight", *weight);
  return data::from_tensor_slices(tensors);
}

// The rows of a batch of tensors, by the option of that name.
int64_t checked_batch_size(std::string_view method, std::string_view option, int64_t size) {
  if (size < 1) invalid(method, ": ", option, " must be at least 1, got ", size);
  return size;
}

data::Dataset batches_of(std::string_view method, const Tensor& x, const PredictOptions& options) {
  return data::from_tensor_slices({{"x", x}})
      .batch(
          checked_batch_size(method, "batch_size", options.batch_size.value_or(kDefaultBatchSize)));
}

// Batches differ in their rows alone.
void require_alike(std::string_view method, const Tensor& first, const Tensor& other,
                   size_t batch) {
  if (other.dtype() != first.dtype() ||
      other.shape().without_axis(0) != first.shape().without_axis(0))
    invalid(method, ": batch ", batch, " gives ", other.spec(), ", and the first gave ",
            first.spec(), "; they become one tensor, and may differ in their rows alone");
}

Tensor concat_rows(std::string_view method, const std::vector<Tensor>& parts) {
  int64_t rows = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    require_alike(method, parts.front(), parts[i], i + 1);
    rows += parts[i].shape().dim(0);
  }
  Tensor whole(parts.front().dtype(), parts.front().shape().with_dim(0, rows));
  auto* to = static_cast<char*>(whole.raw());
  for (const Tensor& part : parts) {
    if (part.bytes() > 0) std::memcpy(to, part.raw(), part.bytes());
    to += part.bytes();
  }
  return whole;
}

// As a word that follows another one; nothing for a model without a name.
std::string in_quotes(const std::string& name) { return name.empty() ? "" : str(" \"", name, '"'); }

void check_steps(std::string_view method, std::optional<int64_t> steps) {
  if (steps && *steps < 1) invalid(method, ": steps must be at least 1, got ", *steps);
}

}  // namespace

ValidationData::ValidationData(const Tensor& x, const Tensor& y,
                               const std::optional<Tensor>& sample_weight)
    : data_(dataset_of(x, y, sample_weight)), is_batched_(false) {}

data::Dataset ValidationData::batches(std::optional<int64_t> batch_size) const {
  if (!is_batched_) return data_.batch(batch_size.value_or(kDefaultBatchSize));
  if (batch_size) invalid("validation_batch_size is for tensors; a dataset has batch()");
  return data_;
}

Model::Model(nn::Layer network)
    : state_(new State{.network = network,
                       .strategy = current_strategy(),
                       .lifetime = current_strategy().lifetime(),
                       .strategy_name = current_strategy().name(),
                       .predict = Function(
                           [network = std::move(network)](const std::vector<Value>& inputs) {
                             return network.outputs(inputs);
                           },
                           "predict")}) {
  if (!state_->network) invalid("a model needs a network, and got an empty layer");
}

void Model::require_home() const {
  const Strategy& current = current_strategy();
  if (!has_strategy() || &current == &strategy()) return;
  const bool has_scope = &strategy() != &default_strategy();
  fail(Code::kFailedPrecondition, "the model", in_quotes(network().name()), " was made ",
       has_scope ? str("in the scope of ", strategy().name(), ", not in that of ")
                 : "outside the scope of ",
       strategy().name() == current.name() ? "another " : "", current.name(),
       ", which is current: create it in that scope");
}

Strategy::Scope Model::enter_home() const {
  require_home();
  return strategy().scope();
}

void Model::compile(CompileOptions options) {
  require_home();
  if (state_->is_fitting)
    fail(Code::kFailedPrecondition,
         "compile: fit() is training with what was compiled before; call it when fit() has ended");
  options.optimizer.check_strategy(strategy());
  if (options.precision == Precision::kMixedFloat16) options.optimizer.use_loss_scale();
  state_->stepper =
      std::make_unique<Stepper>(state_->network, state_->strategy, std::move(options));
  load_pending();
}

Stepper& Model::stepper() const {
  if (!state_->stepper)
    fail(Code::kFailedPrecondition,
         "the model has no optimizer and loss yet: call compile() first");
  return *state_->stepper;
}

void Model::build(const std::vector<TensorSpec>& inputs) {
  const auto scope = enter_home();
  state_->network.build(inputs);
  load_pending();
}

void Model::build_for(Feed& feed, int64_t epoch) {
  if (variables().empty()) {
    std::vector<TensorSpec> inputs;
    for (const Tensor& feature : features_of(feed.peek(epoch)[0])) inputs.push_back(feature.spec());
    build(inputs);
  }
  load_pending();  // what could not be loaded before
  require_loaded();
}

History Model::fit(const data::Dataset& dataset, const FitOptions& options) {
  if (options.batch_size || options.shuffle || options.validation_split || options.sample_weight) {
    invalid(
        "fit: batch_size, shuffle, validation_split and sample_weight are for tensors; a dataset "
        "has batch(), shuffle(), take(), skip() and tensors named \"weight\"");
  }
  require_home();
  stepper();
  const struct Fitting {
    bool& flag;
    const bool before = std::exchange(flag, true);
    ~Fitting() { flag = before; }
  } fitting{state_->is_fitting};
  return together(strategy().workers(), [&] {
    Training training(*this, dataset, options);
    return training.run();
  });
}

History Model::fit(const Tensor& x, const Tensor& y, const FitOptions& options) {
  const double split = options.validation_split.value_or(0);
  if (!(split >= 0 && split < 1)) invalid("fit: validation_split must be in [0, 1), got ", split);
  if (split > 0 && options.validation_data)
    invalid("fit: give validation_data or validation_split, not both");
  const int64_t batch_size =
      checked_batch_size("fit", "batch_size", options.batch_size.value_or(kDefaultBatchSize));
  data::Dataset all = dataset_of(x, y, options.sample_weight);
  const auto train_rows =
      static_cast<int64_t>(std::floor(static_cast<double>(all.cardinality()) * (1 - split)));
  if (split > 0 && train_rows == 0)
    invalid("fit: validation_split of ", split, " leaves none of ", all.cardinality(),
            " rows to train on");

  FitOptions rest = options;
  rest.batch_size.reset();
  rest.shuffle.reset();
  rest.validation_split.reset();
  rest.sample_weight.reset();
  const int64_t validation_batch_size = checked_batch_size(
      "fit", "validation_batch_size", options.validation_batch_size.value_or(batch_size));
  if (split > 0) {
    rest.validation_data = all.skip(train_rows).batch(validation_batch_size);
    rest.validation_batch_size.reset();
  } else if (options.validation_data && !options.validation_data->is_batched()) {
    rest.validation_batch_size = validation_batch_size;
  }
  data::Dataset train = all.take(train_rows);
  if (options.shuffle.value_or(true) && train_rows > 1) train = train.shuffle(train_rows);
  return fit(train.batch(batch_size), rest);
}

Logs Model::evaluate(const data::Dataset& dataset, const EvaluateOptions& options) {
  check_steps("evaluate", options.steps);
  if (options.batch_size || options.sample_weight) {
    invalid(
        "evaluate: batch_size and sample_weight are for tensors; a dataset has batch() and tensors "
        "named \"weight\"");
  }
  const CatchTermination catch_termination;
  stepper();
  EvaluateOptions rest = options;
  rest.interruptible &= !state_->is_fitting;  // a callback: fit() has to save first
  return together(strategy().workers(), [&] {
    try {
      const auto tested = test(dataset, rest);
      if (!tested) fail(Code::kCancelled, "interrupted");
      warn_of_end(strategy(), "evaluate", "steps", options.steps, tested->batches);
      return tested->logs;
    } catch (const Error& error) {
      throw error.with_context("evaluate");
    }
  });
}

Feed Model::evaluation_feed(const data::Dataset& dataset, std::optional<int64_t> steps,
                            AutoShardPolicy auto_shard, std::string_view steps_name) const {
  if (auto_shard == AutoShardPolicy::kAuto && strategy().input_context().independent)
    auto_shard = AutoShardPolicy::kOff;  // each worker evaluates all rows
  return Feed(strategy(), steps ? dataset.take(*steps) : dataset, std::nullopt, steps_name,
              {.auto_shard = auto_shard});
}

std::optional<Model::Tested> Model::test(const data::Dataset& dataset,
                                         const EvaluateOptions& options) {
  require_home();
  Feed feed = evaluation_feed(dataset, options.steps, options.auto_shard);
  build_for(feed, 0);
  stepper().attach();
  feed.begin_epoch(0);
  Totals totals;
  while (const auto batch = feed.next()) {
    stepper().test(*batch, totals);
    if (options.interruptible && strategy().workers().stop_requested()) return std::nullopt;
  }
  return Tested{stepper().logs(totals), feed.handed_out()};
}

Logs Model::evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options) {
  const int64_t batch_size =
      checked_batch_size("evaluate", "batch_size", options.batch_size.value_or(kDefaultBatchSize));
  const data::Dataset rows = dataset_of(x, y, options.sample_weight);
  EvaluateOptions rest = options;
  rest.batch_size.reset();
  rest.sample_weight.reset();
  return evaluate(rows.batch(batch_size), rest);
}

Tensor Model::predict(const data::Dataset& dataset, const PredictOptions& options) {
  if (const auto names = output_names(); names.size() != 1)
    invalid("predict: the model has ", in_words(names), ": predict_all() gives them all");
  return predict_outputs("predict", dataset, options).front();
}

data::Element Model::predict_all(const data::Dataset& dataset, const PredictOptions& options) {
  const std::vector<Tensor> outputs = predict_outputs("predict_all", dataset, options);
  const std::vector<std::string> names = output_names();
  std::vector<data::Field> fields;
  for (size_t i = 0; i < outputs.size(); ++i) fields.push_back({names[i], outputs[i]});
  return data::Element(std::move(fields));
}

std::vector<Tensor> Model::predict_outputs(std::string_view method, const data::Dataset& dataset,
                                           const PredictOptions& options) {
  check_steps(method, options.steps);
  if (options.batch_size) invalid(method, ": batch_size is for tensors; a dataset has batch()");
  const CatchTermination catch_termination;
  Workers& workers = strategy().workers();
  const bool interruptible = options.interruptible && !state_->is_fitting;  // as of evaluate()
  std::vector<std::vector<Tensor>> parts(output_names().size());  // by output, then by batch
  together(workers, [&] {
    try {
      require_home();
      Feed feed(strategy(), options.steps ? dataset.take(*options.steps) : dataset, std::nullopt,
                "steps", {.keep_order = true});
      build_for(feed, 0);
      if (state_->stepper) state_->stepper->attach();
      feed.begin_epoch(0);
      while (const auto batch = feed.next()) {
        const std::vector<Tensor> outputs = predict_batch(*batch);
        for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(outputs[i]);
        if (interruptible && workers.stop_requested()) fail(Code::kCancelled, "interrupted");
      }
      warn_of_end(strategy(), method, "steps", options.steps, feed.handed_out());
    } catch (const Error& error) {
      throw error.with_context(method);
    }
  });
  std::vector<Tensor> outputs;
  for (const std::vector<Tensor>& batches : parts) outputs.push_back(concat_rows(method, batches));
  return outputs;
}

Tensor Model::predict(const Tensor& x, const PredictOptions& options) {
  return predict(batches_of("predict", x, options),
                 {.steps = options.steps, .interruptible = options.interruptible});
}

data::Element Model::predict_all(const Tensor& x, const PredictOptions& options) {
  return predict_all(batches_of("predict_all", x, options),
                     {.steps = options.steps, .interruptible = options.interruptible});
}

std::vector<Tensor> Model::predict_batch(const data::DistributedBatch& batch) {
  RunOptions options{.seed = global_seed(),
                     .step = state_->predicted++,
                     .contents = comma_separated(batch[0].names())};
  if (state_->stepper) options.precision = state_->stepper->options().precision;
  PerReplica<std::vector<Tensor>> inputs(batch.size());
  for (size_t r = 0; r < batch.size(); ++r) inputs[r] = features_of(batch[r]);
  const auto results = strategy().run(state_->predict, inputs, options);
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < results[0].size(); ++i) {
    PerReplica<Tensor> parts(batch.size());
    for (size_t r = 0; r < parts.size(); ++r) parts[r] = results[r][i];
    outputs.push_back(strategy().gather(parts, 0));
  }
  return outputs;
}

FunctionMemory Model::step_memory() const {
  FunctionMemory all = state_->predict.memory();
  if (state_->stepper) all += state_->stepper->memory();
  return all;
}

Value Model::operator()(const Value& x, const nn::CallContext& context) const {
  require_loaded();
  return state_->network(x, context);
}

Value Model::operator()(const std::vector<Value>& inputs, const nn::CallContext& context) const {
  require_loaded();
  return state_->network(inputs, context);
}

std::vector<Value> Model::outputs(const std::vector<Value>& inputs,
                                  const nn::CallContext& context) const {
  require_loaded();
  return state_->network.outputs(inputs, context);
}

nn::Symbol Model::operator()(const nn::Symbol& x, const nn::SymbolContext& context) const {
  require_loaded();
  return state_->network(x, context);
}

nn::Symbol Model::operator()(const std::vector<nn::Symbol>& inputs,
                             const nn::SymbolContext& context) const {
  require_loaded();
  return state_->network(inputs, context);
}

std::vector<nn::Symbol> Model::outputs(const std::vector<nn::Symbol>& inputs,
                                       const nn::SymbolContext& context) const {
  require_loaded();
  return state_->network.outputs(inputs, context);
}

Variables Model::all_variables() const {
  const auto scope = enter_home();
  Variables all = variables();
  if (state_->stepper)
    for (auto& variable : optimizer().variables()) all.push_back(std::move(variable));
  return all;
}

Strategy& Model::strategy() const {
  if (state_->lifetime.expired())
    fail(Code::kFailedPrecondition, "the model", in_quotes(network().name()),
         " was made in the scope of ", state_->strategy_name,
         ", which has ended: declare the strategy before the model, and where it lives as long; of "
         "this model no more than variables() can be used");
  return state_->strategy;
}

const nn::Layer& Model::network() const { return state_->network; }
std::vector<std::string> Model::output_names() const { return network().output_names(); }
const optim::Optimizer& Model::optimizer() const { return stepper().options().optimizer; }
Variables Model::variables() const { return state_->network.variables(); }
Variables Model::trainable_variables() const { return state_->network.trainable_variables(); }

namespace nn {

Model Sequential(const std::vector<Layer>& layers, std::string name) {
  return Model(make_sequential(layers, std::move(name)));
}

Model Functional(const std::vector<Symbol>& inputs, const Symbol& output, std::string name) {
  return Functional(inputs, std::vector{output}, std::move(name));
}

Model Functional(const std::vector<Symbol>& inputs, const std::vector<Symbol>& outputs,
                 std::string name) {
  Model model(make_functional(inputs, outputs, std::move(name)));
  std::vector<TensorSpec> specs;
  for (const Symbol& input : inputs)
    specs.push_back({input.dtype(), input.shape().with_inserted(0, 1)});
  model.build(specs);
  return model;
}

}  // namespace nn
}  // namespace cohort
