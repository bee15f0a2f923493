#include <map>

#include "core/distribute/remote_updates.h"
#include "core/distribute/strategy.h"
#include "core/graph/value_map.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/clipping.h"
#include "core/optim/ema.h"
#include "core/optim/non_finite.h"
#include "core/optim/optimizer_state.h"
#include "core/optim/reduction.h"

namespace cohort::optim {
namespace {

// A variable with the gradient to move it along.
struct Move {
  VariablePtr variable;
  Gradient gradient;
};

std::vector<Value> values_of(const std::vector<Move>& moves) {
  std::vector<Value> values;
  for (const Move& move : moves) values.push_back(move.gradient.values);
  return values;
}

// The value of a variable, or of the rows that a sparse gradient names.
Value load(Variable& variable, const Gradient& gradient) {
  if (!gradient.sparse()) return variable.read();
  return ops::gather_rows_or_zero(variable.read(), gradient.indices);
}

}  // namespace

Value scheduled_rate(const Schedule& schedule, const Value& updates) {
  const Value rate = schedule(updates);
  if (!rate.defined()) invalid("the schedule of a learning rate returned no value");
  if (rate.shape().rank() != 0 || !is_floating(rate.dtype()))
    invalid("the schedule of a learning rate must return a floating scalar, got ", rate.spec());
  return ops::cast(rate, DType::kFloat64);
}

// A step while it is traced.
class Optimizer::State::Step {
 public:
  // Computes what all variables share.
  explicit Step(State& state);
  void apply(const std::vector<Gradient>& gradients, const std::vector<VariablePtr>& variables,
             const ApplyOptions& options);

 private:
  // What variables of one multiplier of the learning rate share.
  struct Rate {
    Value learning_rate;         // float64
    std::vector<Value> scalars;  // float64, of the rule
  };

  // Whether this call is the last before an update of this process.
  Value count_own_call() const;
  // What other processes have skipped may be counted here before they are counted as calls.
  Value without_skipped(const Value& updates) const;
  // Adds each of a replica's gradients to those of the calls before. The result is what to sum over
  // the replicas if this call is an update: the means.
  std::vector<Gradient> accumulate(const std::vector<Gradient>& gradients,
                                   const std::vector<VariablePtr>& variables);
  // Sums a replica's gradients over all of them.
  std::vector<Gradient> reduce(const std::vector<Gradient>& gradients,
                               const std::vector<VariablePtr>& variables);
  // What an update of this call takes.
  std::vector<Gradient> sums(const std::vector<Gradient>& gradients,
                             const std::vector<VariablePtr>& variables, bool are_sums);
  // The reduced gradient in the form in which it is applied: by rows, each once, or dense.
  Gradient prepared(const Variable& variable, const Gradient& gradient) const;
  // Decides whether to make the update.
  void find_skips(const std::vector<Move>& moves);
  // Takes the loss scale off.
  void unscale(std::vector<Move>& moves);
  void adjust_loss_scale() const;
  void update(const Move& move);
  // Moves the average of a variable that becomes `value`. The result is what it becomes instead,
  // where averages take the place of variables.
  Value follow(Variable& average, const Value& value);
  // `weight` as ApplyOptions has it.
  void push(RemoteUpdates& remote, const std::vector<Move>& moves, const Value& weight) const;

  const Rate& rate_of(const Variable& variable) const {
    return rates_.at(state_.rate_multiplier_of(variable));
  }
  // The scalar in this dtype, cast once.
  Value as(DType dtype, const Value& scalar);

  State& state_;
  Value calls_;                   // made before this one: int64
  Value number_;                  // of the update, from 1: float64
  EmaStep ema_;                   // without values unless there are averages
  std::map<double, Rate> rates_;  // by their multipliers, of which 1 is one
  Value is_update_;               // bool, or none: every call is one
  Value applies_;                 // whether an update is made, and
  Value skips_;                   // whether it is left out; none: as is_update_, and never
  ValueMap<std::map<DType, Value>> casts_;
};

void Optimizer::State::apply(const std::vector<Gradient>& gradients,
                             const std::vector<VariablePtr>& variables, const ApplyOptions& how) {
  check_groups_name(variables);
  if (variables.empty())
    warn_without_variables();
  else
    warn_of_exclusions(variables);
  warn_of_equal_names(variables);
  make_counters();
  Step(*this).apply(gradients, variables, how);
}

Optimizer::State::Step::Step(State& state) : state_(state), calls_(state.iterations->read()) {
  Value updates = ops::cast(calls_, DType::kFloat64);
  if (state_.accumulates()) {
    const Value calls = updates;
    const double steps = state_.accumulation_steps();
    updates = ops::floor(calls / steps);
    is_update_ =
        state_.own_calls ? count_own_call() : ops::equal(calls, (updates + 1.0) * steps - 1.0);
  }
  applies_ = is_update_;
  if (state_.skips_updates()) updates = without_skipped(updates);
  const Schedule& schedule = state_.options.learning_rate.schedule();
  const Value rate = schedule ? scheduled_rate(schedule, updates) : state_.learning_rate->read();
  number_ = updates + 1.0;
  if (state_.averages()) ema_ = ema_step(*state_.options.ema, number_);
  rates_[1].learning_rate = rate;
  for (const VariableGroup& group : state_.options.groups)
    if (const double factor = group.learning_rate_multiplier; factor != 1)
      rates_[factor].learning_rate = rate * factor;
  for (auto& [multiplier, each] : rates_)
    each.scalars = state_.rule->scalars(each.learning_rate, number_);
}

Value Optimizer::State::Step::count_own_call() const {
  const Value before = state_.own_calls->read();
  Value is_last =
      ops::equal(before, ops::constant(state_.accumulation_steps() - 1.0, before.dtype()));
  state_.own_calls->assign(ops::where(is_last, ops::constant(0, before.dtype()), before + 1.0));
  return is_last;
}

Value Optimizer::State::Step::without_skipped(const Value& updates) const {
  const Value skipped = ops::cast(state_.skipped_updates->read(), DType::kFloat64);
  return ops::maximum(updates - skipped, ops::constant(0, DType::kFloat64));
}

std::vector<Gradient> Optimizer::State::Step::accumulate(
    const std::vector<Gradient>& gradients, const std::vector<VariablePtr>& variables) {
  std::vector<Gradient> means(gradients.size());
  for (const size_t i : ready_order(gradients)) {
    Variable& kept = *state_.slots_of(variables[i]).accumulator;
    const Value sum = kept.read() + gradients[i].dense();
    kept.assign(ops::where(is_update_, ops::constant(0, sum.dtype()), sum));
    means[i].values = sum * (1 / state_.accumulation_steps());
  }
  return means;
}

std::vector<Gradient> Optimizer::State::Step::reduce(const std::vector<Gradient>& gradients,
                                                     const std::vector<VariablePtr>& variables) {
  const GradientOptions& options = state_.options.gradients;
  if (const auto& dtype = options.reduce_as) return reduce_rounded(*dtype, gradients, is_update_);
  const auto& low_rank = options.power_sgd;
  if (!low_rank) return current_strategy().reduce_gradients(gradients, is_update_);
  std::vector<PowerSgdState> states(gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i]) states[i] = state_.slots_of(variables[i]).power_sgd;
  return reduce_low_rank(gradients, states, *low_rank, number_ - 1.0, is_update_);
}

std::vector<Gradient> Optimizer::State::Step::sums(const std::vector<Gradient>& gradients,
                                                   const std::vector<VariablePtr>& variables,
                                                   bool are_sums) {
  if (!state_.accumulates()) return are_sums ? gradients : reduce(gradients, variables);
  const auto parts = are_sums ? of_first_replica(gradients) : gradients;
  return reduce(accumulate(parts, variables), variables);
}

Gradient Optimizer::State::Step::prepared(const Variable& variable,
                                          const Gradient& gradient) const {
  if (gradient.sparse() && state_.rule->row_wise() && !state_.decays(variable) &&
      !variable.constraint() && !state_.averages())
    return ops::combine_slices(gradient);
  return {.values = gradient.dense()};
}

void Optimizer::State::Step::apply(const std::vector<Gradient>& gradients,
                                   const std::vector<VariablePtr>& variables,
                                   const ApplyOptions& options) {
  for (size_t i = 0; i < variables.size(); ++i) {
    if (gradients[i] || state_.averages()) state_.slots_of(variables[i]);
    if (!gradients[i]) state_.warn_without_gradient(*variables[i]);
  }
  Strategy& strategy = current_strategy();
  const std::vector<Gradient> own =
      treat_non_finite(state_.options.gradients.non_finite, gradients, variables);
  const std::vector<Gradient> reduced = sums(own, variables, options.skip_gradients_aggregation);
  std::vector<Move> moves;
  for (const size_t i : ready_order(reduced))
    moves.push_back({variables[i], prepared(*variables[i], reduced[i])});
  if (state_.skips_updates() && !moves.empty()) find_skips(moves);
  if (state_.scales_loss()) unscale(moves);
  const Clipping clip(values_of(moves), state_.options.gradients);

  for (Move& move : moves) move.gradient.values = clip(move.gradient.values);
  if (RemoteUpdates* remote = strategy.remote_updates())
    return push(*remote, moves, options.weight);
  strategy.begin_update();
  state_.iterations->update(calls_ + 1.0);
  for (const Move& move : moves) update(move);
  for (size_t i = 0; i < variables.size(); ++i)
    if (!reduced[i] && state_.averages())
      if (const auto& average = state_.slots_of(variables[i]).average)
        follow(*average, variables[i]->read());
  if (skips_.defined()) {
    if (state_.scales_loss()) adjust_loss_scale();
    Variable& skipped = *state_.skipped_updates;
    skipped.update(skipped.read() + ops::cast(skips_, DType::kInt64));
  }
  strategy.end_update();
}

void Optimizer::State::Step::find_skips(const std::vector<Move>& moves) {
  const Value finite = all_finite(values_of(moves));
  const auto at_update = [this](const Value& condition) {
    return is_update_.defined() ? ops::logical_and(is_update_, condition) : condition;
  };
  applies_ = at_update(finite);
  skips_ = at_update(ops::logical_not(finite));
}

void Optimizer::State::Step::unscale(std::vector<Move>& moves) {
  const Value factor = 1.0 / state_.loss_scale.scale->read();
  for (Move& move : moves) {
    Value& values = move.gradient.values;
    values = values * as(values.dtype(), factor);
  }
}

void Optimizer::State::Step::adjust_loss_scale() const {
  const LossScaleState& kept = state_.loss_scale;
  const auto [scale, counter] =
      next_loss_scale(kept, *state_.options.gradients.loss_scale, applies_, skips_);
  kept.scale->update(scale);
  kept.counter->update(counter);
}

void Optimizer::State::Step::update(const Move& move) {
  const DType dtype = move.variable->spec().dtype;
  const Slots& kept = state_.slots_of(move.variable);
  const Rate& rate = rate_of(*move.variable);
  const auto store = [&](Variable& target, const Value& before, const Value& after) {
    const Value stored = applies_.defined() ? ops::where(applies_, after, before) : after;
    if (move.gradient.sparse())
      target.scatter_update(ScatterOp::kUpdate, move.gradient.indices, stored);
    else
      target.update(stored);
  };
  const Value before = load(*move.variable, move.gradient);
  Value start = before;
  if (const double decay = state_.decay_of(*move.variable); decay != 0)
    start = before - before * as(dtype, rate.learning_rate) * decay;
  std::vector<Value> scalars, slots_before;
  for (const Value& scalar : rate.scalars) scalars.push_back(as(dtype, scalar));
  for (const VariablePtr& slot : kept.of_rule) slots_before.push_back(load(*slot, move.gradient));
  std::vector<Value> slots_after = slots_before;
  Value after = apply_rule(*state_.rule, start, move.gradient.values, slots_after, scalars);
  if (const auto& constraint = move.variable->constraint()) after = constraint(after);
  if (kept.average) after = follow(*kept.average, after);
  store(*move.variable, before, after);
  for (size_t i = 0; i < kept.of_rule.size(); ++i)
    store(*kept.of_rule[i], slots_before[i], slots_after[i]);
}

Value Optimizer::State::Step::follow(Variable& average, const Value& value) {
  const Value before = average.read();
  const Value after = value + (before - value) * as(value.dtype(), ema_.momentum);
  average.update(applies_.defined() ? ops::where(applies_, after, before) : after);
  return ema_.overwrites.defined() ? ops::where(ema_.overwrites, after, value) : value;
}

void Optimizer::State::Step::push(RemoteUpdates& remote, const std::vector<Move>& moves,
                                  const Value& weight) const {
  for (const Move& move : moves)
    // The mean of several calls is not that over their rows.
    remote.push(move.variable, move.gradient,
                {.learning_rate = rate_of(*move.variable).learning_rate,
                 .step = number_,
                 .weight = state_.accumulates() ? Value() : weight,
                 .when = applies_});
  const auto count = [&](const VariablePtr& counter, const Value& when) {
    remote.push(counter, {.values = ops::constant(0, DType::kInt64)},
                {.learning_rate = rates_.at(1).learning_rate, .when = when});
  };
  count(state_.iterations, {});
  if (!skips_.defined()) return;
  count(state_.skipped_updates, skips_);
  if (state_.scales_loss()) adjust_loss_scale();
}

Value Optimizer::State::Step::as(DType dtype, const Value& scalar) {
  Value& value = casts_[scalar][dtype];
  if (!value.defined()) value = ops::cast(scalar, dtype);
  return value;
}

}  // namespace cohort::optim
