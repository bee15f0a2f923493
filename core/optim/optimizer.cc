#include "core/optim/optimizer.h"

#include <cmath>
#include <map>

#include "core/distribute/strategy.h"
#include "core/ops/math_ops.h"
#include "core/optim/clipping.h"
#include "core/optim/ema.h"
#include "core/optim/non_finite.h"
#include "core/optim/optimizer_state.h"
#include "core/optim/reduction.h"
#include "core/optim/rules.h"
#include "core/optim/variable_groups.h"

namespace cohort::optim {
namespace {

void check_learning_rate(double value) {
  if (!(value >= 0 && std::isfinite(value)))
    invalid("the learning rate must be finite and not negative, got ", value);
}

// A variable that is there twice would be changed twice by one gradient.
void check_variables(const std::vector<VariablePtr>& variables) {
  std::map<const Variable*, size_t> places;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i] == nullptr)
      invalid("an optimizer was given ", variables.size(), " variables, of which number ", i,
              ", counted from 0, is null");
    if (const auto [first, is_new] = places.emplace(variables[i].get(), i); !is_new)
      invalid("an optimizer was given variable \"", variables[i]->name(), "\" twice, as numbers ",
              first->second, " and ", i, ", counted from 0; list it once");
  }
}

// For gradients that are not summed here.
void check_skipping(Strategy& strategy) {
  strategy.require_replica("apply_gradients");
  if (strategy.remote_updates() != nullptr)
    fail(Code::kUnimplemented, "skip_gradients_aggregation under ", strategy.name(),
         ": servers put together what workers send, whatever was done to it before");
}

void check_weight(const Value& weight) {
  if (weight.defined() && weight.spec() != TensorSpec{DType::kFloat64, {}})
    invalid("the weight of gradients must be a float64 scalar, got ", weight.spec());
}

void check_gradients(const std::vector<Gradient>& gradients,
                     const std::vector<VariablePtr>& variables) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]) continue;
    const TensorSpec &given = gradients[i].values.spec(), &wanted = variables[i]->spec();
    bool fits = given.dtype == wanted.dtype;
    if (!gradients[i].sparse())
      fits &= given.shape == wanted.shape;
    else
      fits &= given.shape.rank() > 0 && wanted.shape.rank() == given.shape.rank() &&
              gradients[i].rows == wanted.shape[0] &&
              given.shape.without_axis(0) == wanted.shape.without_axis(0);
    if (!fits)
      invalid("a gradient of ", given,
              gradients[i].sparse() ? str(", for rows of ", gradients[i].rows, ",") : "",
              " does not fit variable \"", variables[i]->name(), "\", which is ", wanted);
  }
}

}  // namespace

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, const OptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  if (rule == nullptr) invalid("the rule of an optimizer is null");
  check_slots(*rule);
  check_clipping(options.gradients);
  if (options.gradients.power_sgd) check_power_sgd(*options.gradients.power_sgd);
  check_reduce_as(options.gradients);
  check_loss_scale(options.gradients);
  check_non_finite(options.gradients);
  if (options.gradients.accumulation_steps < 1)
    invalid("accumulation_steps must be at least 1, got ", options.gradients.accumulation_steps);
  check_learning_rate(options.learning_rate.value());
  if (const auto& decay = options.weight_decay.factor)
    check_not_negative("weight_decay", "the factor", *decay);
  check_groups(options.groups);
  if (options.ema) check_ema(*options.ema);
  state_->rule = std::move(rule);
  state_->options = options;
}

void Optimizer::minimize(const Value& loss, const std::vector<VariablePtr>& variables,
                         const Value& weight) const {
  state_->warn_of_shared_loss(loss);
  apply_gradients(gradients(scale_loss(loss), variables), variables, {.weight = weight});
}

void Optimizer::apply_gradients(const std::vector<Gradient>& gradients,
                                const std::vector<VariablePtr>& variables,
                                const ApplyOptions& options) const {
  if (gradients.size() != variables.size())
    invalid("apply_gradients was given ", gradients.size(), " gradients for ", variables.size(),
            " variables");
  check_variables(variables);
  check_gradients(gradients, variables);
  if (in_cross_replica_context() && current_strategy().num_replicas_in_sync() > 1)
    fail(Code::kFailedPrecondition, "an optimizer updates the variables of all replicas of ",
         current_strategy().name(), ": run the step by the strategy's run()");
  if (options.skip_gradients_aggregation) check_skipping(current_strategy());
  check_weight(options.weight);
  state_->apply(gradients, variables, options);
}

Value Optimizer::scale_loss(const Value& loss) const {
  if (!state_->scales_loss()) return loss;
  state_->make_counters();
  return loss * ops::cast(state_->loss_scale.scale->read(), loss.dtype());
}

void Optimizer::use_loss_scale(const LossScale& options) const {
  if (state_->scales_loss()) return;
  GradientOptions changed = state_->options.gradients;
  changed.loss_scale = options;
  check_loss_scale(changed);
  state_->options.gradients = changed;
}

double Optimizer::loss_scale() const {
  if (!state_->scales_loss()) return 1;
  state_->make_counters_of_trace();
  const VariablePtr& scale = state_->loss_scale.scale;
  return scale ? scale->value().item() : state_->options.gradients.loss_scale->initial_scale;
}

const VariablePtr& Optimizer::iterations() const {
  state_->make_counters();
  return state_->iterations;
}

double Optimizer::learning_rate() const {
  state_->make_counters_of_trace();
  const LearningRate& given = state_->options.learning_rate;
  const VariablePtr& kept = state_->learning_rate;
  if (!given.schedule()) return kept ? kept->value().item() : given.value();
  const auto rate = [&](const std::vector<Value>& step) {
    return std::vector<Value>{scheduled_rate(given.schedule(), step[0])};
  };
  return Function(rate)(std::vector<Tensor>{Tensor::scalar(state_->updates())})[0].item();
}

void Optimizer::set_learning_rate(double value) const {
  check_learning_rate(value);
  if (state_->options.learning_rate.schedule())
    fail(Code::kFailedPrecondition, "the learning rate follows a schedule and cannot be set");
  state_->make_counters_of_trace();
  if (state_->learning_rate)
    state_->learning_rate->assign(Tensor::scalar(value));
  else
    state_->options.learning_rate = value;
}

void Optimizer::finalize_variable_values(const std::vector<VariablePtr>& variables) const {
  for (const auto& [variable, average] : state_->averages_of(variables))
    variable->assign(average->value());
}

void Optimizer::swap_averages(const std::vector<VariablePtr>& variables) const {
  for (const auto& [variable, average] : state_->averages_of(variables)) {
    const Tensor value = variable->value();
    variable->assign(average->value());
    average->assign(value);
  }
}

void Optimizer::check_strategy(Strategy& strategy) const {
  if (state_->averages()) require_averages(strategy);
}

std::vector<VariablePtr> Optimizer::variables() const {
  state_->make_counters();
  return state_->all;
}

const UpdateRule& Optimizer::rule() const { return *state_->rule; }

const OptimizerOptions& Optimizer::options() const { return state_->options; }

void Optimizer::build(const std::vector<VariablePtr>& variables) const {
  check_variables(variables);
  state_->check_groups_name(variables);
  state_->make_counters();
  for (const VariablePtr& variable : variables) state_->slots_of(variable);
}

}  // namespace cohort::optim
