#include "core/optim/optimizer.h"

#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "core/distribute/strategy.h"
#include "core/ops/math_ops.h"
#include "core/ops/state_ops.h"
#include "core/optim/clipping.h"

namespace cohort::optim {
namespace {

using VariablePtr = std::shared_ptr<Variable>;

VariablePtr make_state(std::string name, const TensorSpec& spec, double initial) {
  return create_variable(
      {.name = std::move(name),
       .spec = spec,
       .initial_value = [=] { return Tensor::full(spec.dtype, spec.shape, initial); },
       .trainable = false,
       .aggregation = Aggregation::kOnlyFirstReplica});
}

// A variable with the gradient to move it along.
struct Move {
  VariablePtr variable;
  Gradient gradient;
};

}  // namespace

struct Optimizer::State {
  // What is kept for one variable.
  struct Slots {
    std::vector<VariablePtr> of_rule;
    VariablePtr
        accumulator;  // the sum of gradients since the last update; null without accumulation
  };
  // What all variables share while one step is traced.
  struct Step {
    Value learning_rate;         // float64
    std::vector<Value> scalars;  // float64, of the rule
    Value is_update;             // bool, or none: every call is one
    std::map<std::pair<Value, DType>, Value> casts;

    Value as(DType dtype, const Value& scalar) {
      Value& value = casts[{scalar, dtype}];
      if (!value) value = ops::cast(scalar, dtype);
      return value;
    }
  };

  std::shared_ptr<const UpdateRule> rule;
  OptimizerOptions options;
  VariablePtr iterations, learning_rate;
  std::map<VariablePtr, Slots> slots;
  std::vector<VariablePtr> all;  // in the order in which they were made
  std::set<std::string> warned;

  const VariablePtr& add(VariablePtr variable) { return all.emplace_back(std::move(variable)); }

  void make_counters() {
    if (iterations != nullptr) return;
    iterations = add(make_state(options.name + "/iterations", {DType::kInt64, {}}, 0));
    if (!options.learning_rate.schedule())
      learning_rate = add(make_state(options.name + "/learning_rate", {DType::kFloat64, {}},
                                     options.learning_rate.value()));
  }

  const Slots& slots_of(const VariablePtr& variable) {
    const auto [it, is_new] = slots.try_emplace(variable);
    if (!is_new) return it->second;
    const auto make = [&](const std::string& slot, double initial) {
      return add(make_state(str(options.name, "/", slot, "/", variable->name()), variable->spec(),
                            initial));
    };
    for (const UpdateRule::Slot& slot : rule->slots())
      it->second.of_rule.push_back(make(slot.name, slot.initial));
    if (accumulates()) it->second.accumulator = make("gradient_accumulator", 0);
    return it->second;
  }

  bool accumulates() const { return options.gradients.accumulation_steps > 1; }
  double accumulation_steps() const {
    return static_cast<double>(options.gradients.accumulation_steps);
  }

  bool decays(const Variable& variable) const {
    if (options.weight_decay.factor == 0) return false;
    for (const std::string& part : options.weight_decay.exclude)
      if (variable.name().find(part) != std::string::npos) return false;
    return true;
  }

  void warn_without_gradient(const Variable& variable) {
    if (warned.insert(variable.name()).second)
      std::cerr << "warning: the loss does not depend on variable \"" << variable.name()
                << "\"; it is not trained\n";
  }

  // Counts the call and computes what all variables share.
  Step begin_step() {
    make_counters();
    const Value count = iterations->read();
    iterations->assign(count + 1.0);
    const Value calls = ops::cast(count, DType::kFloat64);
    Step step;
    Value updates = calls;
    if (accumulates()) {
      updates = ops::floor(calls / accumulation_steps());
      const Value last_call = (updates + 1.0) * accumulation_steps() - 1.0;
      step.is_update = ops::equal(calls, last_call);
    }
    const Schedule& schedule = options.learning_rate.schedule();
    step.learning_rate = schedule ? schedule(updates) : learning_rate->read();
    step.scalars = rule->scalars(step.learning_rate, updates + 1.0);
    return step;
  }

  // Adds the gradient to those of the calls before; their mean, if this call is an update.
  Value accumulate(const Step& step, const Slots& kept, const Value& gradient) const {
    const Value sum = kept.accumulator->read() + gradient;
    kept.accumulator->assign(ops::where(step.is_update, ops::constant(0, sum.dtype()), sum));
    return sum * (1 / accumulation_steps());
  }

  void apply_dense(Step& step, const VariablePtr& variable, const Value& gradient) {
    const DType dtype = variable->spec().dtype;
    const Slots& kept = slots_of(variable);
    const auto store = [&](Variable& target, const Value& before, const Value& after) {
      target.assign(step.is_update ? ops::where(step.is_update, after, before) : after);
    };
    const Value before = variable->read();
    Value start = before;
    if (decays(*variable))
      start = before - before * step.as(dtype, step.learning_rate) * options.weight_decay.factor;
    std::vector<Value> scalars, slots_before;
    for (const Value& scalar : step.scalars) scalars.push_back(step.as(dtype, scalar));
    for (const VariablePtr& slot : kept.of_rule) slots_before.push_back(slot->read());
    std::vector<Value> slots_after = slots_before;
    store(*variable, before, rule->update(start, gradient, slots_after, scalars));
    for (size_t i = 0; i < kept.of_rule.size(); ++i)
      store(*kept.of_rule[i], slots_before[i], slots_after[i]);
  }

  void apply_rows(Step& step, const Move& move) {
    const DType dtype = move.variable->spec().dtype;
    std::vector<Value> scalars, no_slots;
    for (const Value& scalar : step.scalars) scalars.push_back(step.as(dtype, scalar));
    const Value rows =
        rule->update(ops::constant(0, dtype), move.gradient.values, no_slots, scalars);
    ops::assign_scatter_add(move.variable, move.gradient.indices, rows);
  }

  bool by_rows(const Move& move) const {
    return move.gradient.sparse() && rule->row_wise() && !accumulates() &&
           !clips(options.gradients) && !decays(*move.variable);
  }

  void apply(const std::vector<Move>& moves) {
    Step step = begin_step();
    std::vector<const Move*> dense;
    std::vector<Value> values;
    for (const Move& move : moves) {
      if (by_rows(move)) {
        apply_rows(step, move);
        continue;
      }
      dense.push_back(&move);
      values.push_back(accumulates()
                           ? accumulate(step, slots_of(move.variable), move.gradient.dense())
                           : move.gradient.dense());
    }
    values = clip_gradients(values, options.gradients);
    for (size_t i = 0; i < dense.size(); ++i) apply_dense(step, dense[i]->variable, values[i]);
  }
};

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, const OptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  check_clipping(options.gradients);
  if (options.gradients.accumulation_steps < 1)
    invalid("accumulation_steps must be at least 1, got ", options.gradients.accumulation_steps);
  if (!(options.learning_rate.value() >= 0))
    invalid("the learning rate must not be negative, got ", options.learning_rate.value());
  state_->rule = std::move(rule);
  state_->options = options;
}

void Optimizer::minimize(const Value& loss, const std::vector<VariablePtr>& variables) const {
  apply_gradients(gradients(loss, variables), variables);
}

void Optimizer::apply_gradients(const std::vector<Gradient>& gradients,
                                const std::vector<VariablePtr>& variables) const {
  if (gradients.size() != variables.size())
    invalid("apply_gradients was given ", gradients.size(), " gradients for ", variables.size(),
            " variables");
  const std::vector<Gradient> reduced = current_strategy().reduce_gradients(gradients);
  std::vector<Move> moves;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (reduced[i])
      moves.push_back({variables[i], reduced[i]});
    else
      state_->warn_without_gradient(*variables[i]);
  }
  state_->apply(moves);
}

const VariablePtr& Optimizer::iterations() const {
  state_->make_counters();
  return state_->iterations;
}

double Optimizer::learning_rate() const {
  state_->make_counters();
  const Schedule& schedule = state_->options.learning_rate.schedule();
  if (!schedule) return state_->learning_rate->value().item();
  const double calls = state_->iterations->value().item();
  const auto rate = [&](const std::vector<Value>& step) {
    return std::vector<Value>{schedule(step[0])};
  };
  const Tensor updates = Tensor::scalar(std::floor(calls / state_->accumulation_steps()));
  return Function(rate)(std::vector<Tensor>{updates})[0].item();
}

void Optimizer::set_learning_rate(double value) const {
  if (!(value >= 0)) invalid("the learning rate must not be negative, got ", value);
  state_->make_counters();
  if (state_->learning_rate == nullptr)
    fail(Code::kFailedPrecondition, "the learning rate follows a schedule and cannot be set");
  state_->learning_rate->set_value(Tensor::scalar(value));
}

std::vector<VariablePtr> Optimizer::variables() const {
  state_->make_counters();
  return state_->all;
}

void Optimizer::build(const std::vector<VariablePtr>& variables) const {
  state_->make_counters();
  for (const VariablePtr& variable : variables) state_->slots_of(variable);
}

}  // namespace cohort::optim
