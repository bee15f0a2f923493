#include <algorithm>

#include "core/base/notice.h"
#include "core/distribute/strategy.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/clipping.h"
#include "core/optim/optimizer_state.h"
#include "core/optim/reduction.h"
#include "core/optim/variable_path.h"

namespace cohort::optim {
namespace {

// The value of a variable, or of the rows that a sparse gradient names.
Value load(Variable& variable, const Gradient& gradient) {
  if (!gradient.sparse()) return variable.read();
  return ops::gather_rows_or_zero(variable.read(), gradient.indices);
}

}  // namespace

Value rate_of(const Schedule& schedule, const Value& updates) {
  const Value rate = schedule(updates);
  if (!rate.defined()) invalid("the schedule of a learning rate returned no value");
  if (rate.shape().rank() != 0 || !is_floating(rate.dtype()))
    invalid("the schedule of a learning rate must return a floating scalar, got ", rate.spec());
  return ops::cast(rate, DType::kFloat64);
}

void Optimizer::State::Step::decide(const Value& finite) {
  const auto at_update = [this](const Value& condition) {
    return is_update.defined() ? ops::logical_and(is_update, condition) : condition;
  };
  applies = at_update(finite);
  skips = at_update(ops::logical_not(finite));
}

Value Optimizer::State::Step::as(DType dtype, const Value& scalar) {
  Value& value = casts[scalar][dtype];
  if (!value.defined()) value = ops::cast(scalar, dtype);
  return value;
}

void Optimizer::State::warn_without_gradient(const Variable& variable) {
  if (!warned.insert(variable.name()).second) return;
  const std::string named = str("variable \"", variable.name(), "\"");
  const DType dtype = variable.spec().dtype;
  print_notice(str("warning: ",
                   is_floating(dtype) ? str("the loss does not depend on ", named)
                                      : str(named, " is ", dtype, ", which has no gradient"),
                   "; it is not trained\n"));
}

void Optimizer::State::warn_of_exclusions(const std::vector<VariablePtr>& variables) {
  const auto decays = [](const VariableGroup& group) {
    return group.weight_decay.value_or(0) != 0;
  };
  if (options.weight_decay.factor.value_or(0) == 0 &&
      std::none_of(options.groups.begin(), options.groups.end(), decays))
    return;
  for (const std::string& entry : options.weight_decay.exclude) {
    const auto is_named = [&](const VariablePtr& each) { return is_named_by(each->name(), entry); };
    if (std::none_of(variables.begin(), variables.end(), is_named) &&
        warned.insert("exclude " + entry).second)
      print_notice(str("warning: weight decay is to exclude \"", entry,
                       "\", which is no whole part of the name of any variable that is trained, "
                       "such as \"",
                       variables.front()->name(), "\"\n"));
  }
}

void Optimizer::State::warn_without_variables() {
  if (warned.insert("").second)
    print_notice(
        "warning: an optimizer was given no variables, so nothing is trained; a layer has none "
        "before it is built or called\n");
}

Optimizer::State::Step Optimizer::State::begin_step() {
  make_counters();
  Step step;
  step.calls = iterations->read();
  Value updates = ops::cast(step.calls, DType::kFloat64);
  if (accumulates()) {
    const Value calls = updates;
    updates = ops::floor(calls / accumulation_steps());
    step.is_update = own_calls ? count_own_call()
                               : ops::equal(calls, (updates + 1.0) * accumulation_steps() - 1.0);
  }
  step.applies = step.is_update;
  if (scales_loss()) updates = without_skipped(updates);
  const Schedule& schedule = options.learning_rate.schedule();
  const Value rate = schedule ? rate_of(schedule, updates) : learning_rate->read();
  step.number = updates + 1.0;
  step.rates[1].learning_rate = rate;
  for (const VariableGroup& group : options.groups)
    if (const double factor = group.learning_rate_multiplier; factor != 1)
      step.rates[factor].learning_rate = rate * factor;
  for (auto& [multiplier, each] : step.rates)
    each.scalars = rule->scalars(each.learning_rate, step.number);
  return step;
}

Value Optimizer::State::count_own_call() const {
  const Value before = own_calls->read();
  const Value is_last =
      ops::equal(before, ops::constant(accumulation_steps() - 1.0, before.dtype()));
  own_calls->assign(ops::where(is_last, ops::constant(0, before.dtype()), before + 1.0));
  return is_last;
}

Value Optimizer::State::without_skipped(const Value& updates) const {
  const Value skipped = ops::cast(loss_scale.skipped->read(), DType::kFloat64);
  return ops::maximum(updates - skipped, ops::constant(0, DType::kFloat64));
}

std::vector<Gradient> Optimizer::State::accumulate(const Step& step,
                                                   const std::vector<Gradient>& gradients,
                                                   const std::vector<VariablePtr>& variables) {
  std::vector<Gradient> means(gradients.size());
  for (const size_t i : ready_order(gradients)) {
    Variable& kept = *slots_of(variables[i]).accumulator;
    const Value sum = kept.read() + gradients[i].dense();
    kept.assign(ops::where(step.is_update, ops::constant(0, sum.dtype()), sum));
    means[i].values = sum * (1 / accumulation_steps());
  }
  return means;
}

std::vector<Gradient> Optimizer::State::reduce(const Step& step,
                                               const std::vector<Gradient>& gradients,
                                               const std::vector<VariablePtr>& variables) {
  if (const auto& dtype = options.gradients.reduce_as)
    return reduce_rounded(*dtype, gradients, step.is_update);
  const auto& low_rank = options.gradients.power_sgd;
  if (!low_rank) return current_strategy().reduce_gradients(gradients, step.is_update);
  std::vector<PowerSgdState> states(gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i]) states[i] = slots_of(variables[i]).power_sgd;
  return reduce_low_rank(gradients, states, *low_rank, step.number - 1.0, step.is_update);
}

std::vector<Gradient> Optimizer::State::sums(const Step& step,
                                             const std::vector<Gradient>& gradients,
                                             const std::vector<VariablePtr>& variables,
                                             bool are_sums) {
  if (!accumulates()) return are_sums ? gradients : reduce(step, gradients, variables);
  const auto parts = are_sums ? of_first_replica(gradients) : gradients;
  return reduce(step, accumulate(step, parts, variables), variables);
}

Gradient Optimizer::State::prepared(const Variable& variable, const Gradient& gradient) const {
  if (gradient.sparse() && rule->row_wise() && !decays(variable) && !variable.constraint())
    return ops::combine_slices(gradient);
  return {.values = gradient.dense()};
}

void Optimizer::State::update(Step& step, const Move& move) {
  const DType dtype = move.variable->spec().dtype;
  const Slots& kept = slots_of(move.variable);
  const auto store = [&](Variable& target, const Value& before, const Value& after) {
    const Value stored = step.applies.defined() ? ops::where(step.applies, after, before) : after;
    if (move.gradient.sparse())
      target.scatter_update(ScatterOp::kUpdate, move.gradient.indices, stored);
    else
      target.update(stored);
  };
  const Value before = load(*move.variable, move.gradient);
  Value start = before;
  const Rate& rate = step.rates.at(rate_multiplier_of(*move.variable));
  if (const double decay = decay_of(*move.variable); decay != 0)
    start = before - before * step.as(dtype, rate.learning_rate) * decay;
  std::vector<Value> scalars, slots_before;
  for (const Value& scalar : rate.scalars) scalars.push_back(step.as(dtype, scalar));
  for (const VariablePtr& slot : kept.of_rule) slots_before.push_back(load(*slot, move.gradient));
  std::vector<Value> slots_after = slots_before;
  Value after = rule->update(start, move.gradient.values, slots_after, scalars);
  if (const auto& constraint = move.variable->constraint()) after = constraint(after);
  store(*move.variable, before, after);
  for (size_t i = 0; i < kept.of_rule.size(); ++i)
    store(*kept.of_rule[i], slots_before[i], slots_after[i]);
}

void Optimizer::State::apply(const std::vector<Gradient>& gradients,
                             const std::vector<VariablePtr>& variables, bool are_sums) {
  check_groups_name(variables);
  if (variables.empty())
    warn_without_variables();
  else
    warn_of_exclusions(variables);
  Step step = begin_step();
  for (size_t i = 0; i < variables.size(); ++i) {
    if (gradients[i])
      slots_of(variables[i]);
    else
      warn_without_gradient(*variables[i]);
  }
  Strategy& strategy = current_strategy();
  const std::vector<Gradient> reduced = sums(step, gradients, variables, are_sums);
  std::vector<Move> moves;
  for (const size_t i : ready_order(reduced))
    moves.push_back({variables[i], prepared(*variables[i], reduced[i])});
  if (scales_loss() && !moves.empty()) unscale(step, moves);
  const Clipping clip(values_of(moves), options.gradients);

  for (Move& move : moves) move.gradient.values = clip(move.gradient.values);
  if (RemoteUpdates* remote = strategy.remote_updates()) return push(*remote, step, moves);
  strategy.begin_update();
  iterations->update(step.calls + 1.0);
  for (const Move& move : moves) update(step, move);
  if (step.skips.defined()) {
    adjust_loss_scale(step);
    Variable& skipped = *loss_scale.skipped;
    skipped.update(skipped.read() + ops::cast(step.skips, DType::kInt64));
  }
  strategy.end_update();
}

std::vector<Value> Optimizer::State::values_of(const std::vector<Move>& moves) {
  std::vector<Value> values;
  for (const Move& move : moves) values.push_back(move.gradient.values);
  return values;
}

void Optimizer::State::unscale(Step& step, std::vector<Move>& moves) const {
  step.decide(all_finite(values_of(moves)));
  const Value factor = 1.0 / loss_scale.scale->read();
  for (Move& move : moves) {
    Value& values = move.gradient.values;
    values = values * step.as(values.dtype(), factor);
  }
}

void Optimizer::State::adjust_loss_scale(const Step& step) const {
  const auto [scale, counter] =
      next_loss_scale(loss_scale, *options.gradients.loss_scale, step.applies, step.skips);
  loss_scale.scale->update(scale);
  loss_scale.counter->update(counter);
}

void Optimizer::State::push(RemoteUpdates& remote, const Step& step,
                            const std::vector<Move>& moves) const {
  for (const Move& move : moves)
    remote.push(move.variable, move.gradient,
                step.rates.at(rate_multiplier_of(*move.variable)).learning_rate, step.number,
                step.applies);
  const auto count = [&](const VariablePtr& counter, const Value& when) {
    remote.push(counter, {.values = ops::constant(0, DType::kInt64)},
                step.rates.at(1).learning_rate, {}, when);
  };
  count(iterations, {});
  if (!step.skips.defined()) return;
  count(loss_scale.skipped, step.skips);
  adjust_loss_scale(step);
}

}  // namespace cohort::optim
