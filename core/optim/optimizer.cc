#include "core/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/base/notice.h"
#include "core/distribute/row_variable.h"
#include "core/distribute/strategy.h"
#include "core/graph/value_map.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/clipping.h"
#include "core/optim/loss_scale.h"
#include "core/optim/power_sgd.h"
#include "core/optim/rules.h"
#include "core/optim/variable_path.h"

namespace cohort::optim {
namespace {

using VariablePtr = std::shared_ptr<Variable>;

// What an optimizer keeps: the same on every replica, unless the options say otherwise.
VariablePtr make_state(std::string name, const TensorSpec& spec, double initial,
                       Synchronization synchronization = Synchronization::kAuto,
                       Aggregation aggregation = Aggregation::kOnlyFirstReplica) {
  return create_variable(
      {.name = std::move(name),
       .spec = spec,
       .initial_value = [=] { return Tensor::full(spec.dtype, spec.shape, initial); },
       .trainable = false,
       .synchronization = synchronization,
       .aggregation = aggregation});
}

// For what goes before gradients are sent, where updates are made elsewhere.
const VariablePtr& kept_apart(const VariablePtr& variable, KeptApart kept = KeptApart::kState) {
  if (RemoteUpdates* const remote = current_strategy().remote_updates())
    remote->keep_apart(variable, kept);
  return variable;
}

// The rule of counters where updates are made elsewhere: one more for each, whatever is sent.
class CountRule final : public UpdateRule {
 public:
  std::vector<Slot> slots() const override { return {}; }
  std::vector<Value> scalars(const Value&, const Value&) const override { return {}; }
  Value update(const Value& count, const Value&, std::vector<Value>&,
               const std::vector<Value>&) const override {
    return count + 1.0;
  }
};

// The places of those gradients that exist, in the order in which these become ready.
std::vector<size_t> ready_order(const std::vector<Gradient>& gradients) {
  std::vector<size_t> order;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return gradients[a].values.node().id() < gradients[b].values.node().id();
  });
  return order;
}

// What Strategy::reduce_gradients promises, with the sums of float32 in `dtype`.
std::vector<Gradient> reduce_rounded(DType dtype, const std::vector<Gradient>& gradients,
                                     const Value& when) {
  Strategy& strategy = current_strategy();
  const double replicas = strategy.num_replicas_in_sync();
  const auto is_rounded = [&](size_t i) {
    return !gradients[i].sparse() && gradients[i].values.dtype() == DType::kFloat32;
  };
  std::vector<Gradient> shares = gradients;
  for (const size_t i : ready_order(gradients))
    if (is_rounded(i)) shares[i].values = ops::cast(gradients[i].values * (1 / replicas), dtype);
  std::vector<Gradient> sums = strategy.reduce_gradients(shares, when);
  for (const size_t i : ready_order(sums))
    if (is_rounded(i)) sums[i].values = ops::cast(sums[i].values, DType::kFloat32) * replicas;
  return sums;
}

// Of gradients that are the same on every replica, some whose sum they are.
std::vector<Gradient> of_first_replica(const std::vector<Gradient>& gradients) {
  const Value is_first = ops::equal(ops::replica_id(), ops::constant(0, DType::kInt64));
  std::vector<Gradient> parts = gradients;
  for (const size_t i : ready_order(gradients)) {
    Value& values = parts[i].values;
    values = ops::where(is_first, values, ops::constant(0, values.dtype()));
  }
  return parts;
}

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

void check_reduce_as(const GradientOptions& options) {
  if (!options.reduce_as) return;
  if (!is_half(*options.reduce_as))
    invalid("reduce_as must be bfloat16 or float16, got ", *options.reduce_as);
  if (options.power_sgd)
    invalid("reduce_as and power_sgd cannot both be set: each says how gradients are summed");
}

void check_learning_rate(double value) {
  if (!(value >= 0 && std::isfinite(value)))
    invalid("the learning rate must be finite and not negative, got ", value);
}

void check_variables(const std::vector<VariablePtr>& variables) {
  for (size_t i = 0; i < variables.size(); ++i)
    if (variables[i] == nullptr)
      invalid("an optimizer was given ", variables.size(), " variables, of which number ", i,
              ", counted from 0, is null");
}

// For gradients that are not summed here.
void check_skipping(Strategy& strategy) {
  strategy.require_replica("apply_gradients");
  if (strategy.remote_updates() != nullptr)
    fail(Code::kUnimplemented, "skip_gradients_aggregation under ", strategy.name(),
         ": servers put together what workers send, whatever was done to it before");
}

// The learning rate of a schedule after so many updates: a float64 scalar.
Value rate_of(const Schedule& schedule, const Value& updates) {
  const Value rate = schedule(updates);
  if (!rate.defined()) invalid("the schedule of a learning rate returned no value");
  if (rate.shape().rank() != 0 || !is_floating(rate.dtype()))
    invalid("the schedule of a learning rate must return a floating scalar, got ", rate.spec());
  return ops::cast(rate, DType::kFloat64);
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

// The value of a variable, or of the rows that a sparse gradient names.
Value load(Variable& variable, const Gradient& gradient) {
  if (!gradient.sparse()) return variable.read();
  return ops::gather_rows_or_zero(variable.read(), gradient.indices);
}

}  // namespace

struct Optimizer::State {
  // What is kept for one variable.
  struct Slots {
    std::vector<VariablePtr> of_rule;
    // The sum of this replica's gradients since the last update; null without accumulation.
    VariablePtr accumulator;
    PowerSgdState power_sgd;
  };
  // What all variables share while one step is traced.
  struct Step {
    Value calls;                 // made before this one: int64
    Value learning_rate;         // float64
    Value number;                // of the update, from 1: float64
    std::vector<Value> scalars;  // float64, of the rule
    Value is_update;             // bool, or none: every call is one
    Value applies;               // whether an update is made, and
    Value skips;                 // whether it is left out; none: as is_update, and never
    ValueMap<std::map<DType, Value>> casts;

    void decide(const Value& finite) {
      const auto at_update = [this](const Value& condition) {
        return is_update.defined() ? ops::logical_and(is_update, condition) : condition;
      };
      applies = at_update(finite);
      skips = at_update(ops::logical_not(finite));
    }

    Value as(DType dtype, const Value& scalar) {
      Value& value = casts[scalar][dtype];
      if (!value.defined()) value = ops::cast(scalar, dtype);
      return value;
    }
  };

  std::shared_ptr<const UpdateRule> rule;
  OptimizerOptions options;
  VariablePtr iterations, learning_rate;
  // Where `iterations` counts the calls of other processes too, those of this one since its last
  // update, for accumulation; else null.
  VariablePtr own_calls;
  LossScaleState loss_scale;
  std::map<VariablePtr, Slots> slots;
  std::vector<VariablePtr> all;  // in the order in which they were made
  std::set<std::string> warned;

  const VariablePtr& add(VariablePtr variable) { return all.emplace_back(std::move(variable)); }

  VariablePtr make_scalar(std::string_view what, DType dtype, double initial = 0,
                          Synchronization synchronization = Synchronization::kAuto) const {
    return make_state(str(options.name, "/", what), {dtype, {}}, initial, synchronization);
  }

  void make_counters() {
    if (iterations == nullptr) {
      RemoteUpdates* const remote = current_strategy().remote_updates();
      iterations = add(make_scalar("iterations", DType::kInt64));
      if (remote) remote->attach(iterations, CountRule(), 0, {});
      if (remote && accumulates())
        own_calls = kept_apart(make_scalar("own_calls", DType::kInt64, 0, Synchronization::kOnRead),
                               KeptApart::kCount);
      if (!options.learning_rate.schedule())
        learning_rate =
            add(make_scalar("learning_rate", DType::kFloat64, options.learning_rate.value()));
    }
    if (scales_loss() && loss_scale.scale == nullptr) make_loss_scale();
  }

  // For what may be asked before training: that makes no variables, because they are those of the
  // strategy of the training, which need not be current. While a function is traced it does, and
  // they refuse what would act once.
  void make_counters_of_trace() {
    if (has_current_graph()) make_counters();
  }

  // Where updates are made elsewhere, each process has a scale of its own.
  void make_loss_scale() {
    RemoteUpdates* const remote = current_strategy().remote_updates();
    if (remote && remote->waits_for_others())
      fail(Code::kUnimplemented, "loss scaling under ", current_strategy().name(),
           " needs updates that do not wait for gradients of all workers: one whose gradients are "
           "not finite sends none");
    const auto kept = remote ? Synchronization::kOnRead : Synchronization::kAuto;
    const double initial = options.gradients.loss_scale->initial_scale;
    loss_scale = {add(kept_apart(make_scalar("dynamic_scale", DType::kFloat64, initial, kept))),
                  add(kept_apart(make_scalar("dynamic_counter", DType::kInt64, 0, kept))),
                  add(make_scalar("skipped_updates", DType::kInt64))};
    if (remote) remote->attach(loss_scale.skipped, CountRule(), 0, {});
  }

  const Slots& slots_of(const VariablePtr& variable) {
    const auto known = slots.find(variable);
    if (known != slots.end()) return known->second;
    const auto name_of = [&](const std::string& slot) {
      return str(options.name, "/", slot, "/", variable->name());
    };
    Slots made;
    if (RemoteUpdates* remote = current_strategy().remote_updates()) {
      std::vector<std::string> names;
      for (const UpdateRule::Slot& slot : rule->slots()) names.push_back(name_of(slot.name));
      made.of_rule = remote->attach(variable, *rule, decay_of(*variable), names);
    } else {
      // Copies that are not kept equal have slots of their own.
      const auto kept =
          variable->is_same_on_replicas() ? Synchronization::kAuto : variable->synchronization();
      for (const UpdateRule::Slot& slot : rule->slots())
        made.of_rule.push_back(
            make_state(name_of(slot.name), variable->spec(), slot.initial, kept));
    }
    if (accumulates()) {
      if (as_row_variable(*variable) != nullptr)
        invalid(
            "the gradients of variable \"", variable->name(),
            "\" cannot be accumulated: its rows are made on first use, and a sum would have all "
            "of them");
      made.accumulator = kept_apart(make_state(name_of("gradient_accumulator"), variable->spec(), 0,
                                               Synchronization::kOnRead, Aggregation::kSum),
                                    KeptApart::kSum);
    }
    for (const VariablePtr& slot : made.of_rule) add(slot);
    if (made.accumulator) add(made.accumulator);
    if (const auto& low_rank = options.gradients.power_sgd;
        low_rank && as_row_variable(*variable) == nullptr &&
        is_low_rank(variable->spec().shape, *low_rank))
      made.power_sgd = make_power_sgd_state(*variable, *low_rank, name_of);
    return slots.emplace(variable, std::move(made)).first->second;
  }

  PowerSgdState make_power_sgd_state(
      const Variable& variable, const PowerSgdOptions& low_rank,
      const std::function<std::string(const std::string&)>& name_of) {
    PowerSgdState made;
    if (low_rank.error_feedback)
      made.residual = add(kept_apart(make_state(name_of("power_sgd_residual"), variable.spec(), 0,
                                                Synchronization::kOnRead, Aggregation::kSum)));
    if (low_rank.warm_start) {
      const Tensor first = initial_directions(variable, low_rank);
      made.directions =
          add(kept_apart(create_variable({.name = name_of("power_sgd_directions"),
                                          .spec = first.spec(),
                                          .initial_value = [first] { return first.clone(); },
                                          .trainable = false,
                                          .synchronization = Synchronization::kOnRead,
                                          .aggregation = Aggregation::kOnlyFirstReplica})));
    }
    return made;
  }

  bool scales_loss() const { return options.gradients.loss_scale.has_value(); }
  bool accumulates() const { return options.gradients.accumulation_steps > 1; }
  double accumulation_steps() const {
    return static_cast<double>(options.gradients.accumulation_steps);
  }

  // The factor of weight decay; 0: none.
  double decay_of(const Variable& variable) const {
    for (const std::string& entry : options.weight_decay.exclude)
      if (is_named_by(variable.name(), entry)) return 0;
    return options.weight_decay.factor.value_or(0);
  }
  bool decays(const Variable& variable) const { return decay_of(variable) != 0; }

  void warn_without_gradient(const Variable& variable) {
    if (!warned.insert(variable.name()).second) return;
    const std::string named = str("variable \"", variable.name(), "\"");
    const DType dtype = variable.spec().dtype;
    print_notice(str("warning: ",
                     is_floating(dtype) ? str("the loss does not depend on ", named)
                                        : str(named, " is ", dtype, ", which has no gradient"),
                     "; it is not trained\n"));
  }

  void warn_of_exclusions(const std::vector<VariablePtr>& variables) {
    if (options.weight_decay.factor.value_or(0) == 0) return;
    for (const std::string& entry : options.weight_decay.exclude) {
      const auto is_named = [&](const VariablePtr& each) {
        return is_named_by(each->name(), entry);
      };
      if (std::none_of(variables.begin(), variables.end(), is_named) &&
          warned.insert("exclude " + entry).second)
        print_notice(str("warning: weight decay is to exclude \"", entry,
                         "\", which is no whole part of the name of any variable that is trained, "
                         "such as \"",
                         variables.front()->name(), "\"\n"));
    }
  }

  void warn_without_variables() {
    if (warned.insert("").second)
      print_notice(
          "warning: an optimizer was given no variables, so nothing is trained; a layer has none "
          "before it is built or called\n");
  }

  // Computes what all variables share.
  Step begin_step() {
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
    step.learning_rate = schedule ? rate_of(schedule, updates) : learning_rate->read();
    step.number = updates + 1.0;
    step.scalars = rule->scalars(step.learning_rate, step.number);
    return step;
  }

  // Whether this call is the last before an update of this process.
  Value count_own_call() const {
    const Value before = own_calls->read();
    const Value is_last =
        ops::equal(before, ops::constant(accumulation_steps() - 1.0, before.dtype()));
    own_calls->assign(ops::where(is_last, ops::constant(0, before.dtype()), before + 1.0));
    return is_last;
  }

  // What other processes have skipped may be counted here before they are counted as calls.
  Value without_skipped(const Value& updates) const {
    const Value skipped = ops::cast(loss_scale.skipped->read(), DType::kFloat64);
    return ops::maximum(updates - skipped, ops::constant(0, DType::kFloat64));
  }

  // Adds each of a replica's gradients to those of the calls before. The result is what to sum over
  // the replicas if this call is an update: the means.
  std::vector<Gradient> accumulate(const Step& step, const std::vector<Gradient>& gradients,
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

  // Sums a replica's gradients over all of them.
  std::vector<Gradient> reduce(const Step& step, const std::vector<Gradient>& gradients,
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

  // What an update of this call takes.
  std::vector<Gradient> sums(const Step& step, const std::vector<Gradient>& gradients,
                             const std::vector<VariablePtr>& variables, bool are_sums) {
    if (!accumulates()) return are_sums ? gradients : reduce(step, gradients, variables);
    const auto parts = are_sums ? of_first_replica(gradients) : gradients;
    return reduce(step, accumulate(step, parts, variables), variables);
  }

  // The reduced gradient in the form in which it is applied: by rows, each once, or dense.
  Gradient prepared(const Variable& variable, const Gradient& gradient) const {
    if (gradient.sparse() && rule->row_wise() && !decays(variable) && !variable.constraint())
      return ops::combine_slices(gradient);
    return {.values = gradient.dense()};
  }

  void update(Step& step, const Move& move) {
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
    if (const double decay = decay_of(*move.variable); decay != 0)
      start = before - before * step.as(dtype, step.learning_rate) * decay;
    std::vector<Value> scalars, slots_before;
    for (const Value& scalar : step.scalars) scalars.push_back(step.as(dtype, scalar));
    for (const VariablePtr& slot : kept.of_rule) slots_before.push_back(load(*slot, move.gradient));
    std::vector<Value> slots_after = slots_before;
    Value after = rule->update(start, move.gradient.values, slots_after, scalars);
    if (const auto& constraint = move.variable->constraint()) after = constraint(after);
    store(*move.variable, before, after);
    for (size_t i = 0; i < kept.of_rule.size(); ++i)
      store(*kept.of_rule[i], slots_before[i], slots_after[i]);
  }

  void apply(const std::vector<Gradient>& gradients, const std::vector<VariablePtr>& variables,
             bool are_sums) {
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

  // Takes the loss scale off, and decides whether to make the update.
  void unscale(Step& step, std::vector<Move>& moves) const {
    step.decide(all_finite(values_of(moves)));
    const Value factor = 1.0 / loss_scale.scale->read();
    for (Move& move : moves) {
      Value& values = move.gradient.values;
      values = values * step.as(values.dtype(), factor);
    }
  }

  void adjust_loss_scale(const Step& step) const {
    const auto [scale, counter] =
        next_loss_scale(loss_scale, *options.gradients.loss_scale, step.applies, step.skips);
    loss_scale.scale->update(scale);
    loss_scale.counter->update(counter);
  }

  void push(RemoteUpdates& remote, const Step& step, const std::vector<Move>& moves) const {
    for (const Move& move : moves)
      remote.push(move.variable, move.gradient, step.learning_rate, step.number, step.applies);
    const auto count = [&](const VariablePtr& counter, const Value& when) {
      remote.push(counter, {.values = ops::constant(0, DType::kInt64)}, step.learning_rate, {},
                  when);
    };
    count(iterations, {});
    if (!step.skips.defined()) return;
    count(loss_scale.skipped, step.skips);
    adjust_loss_scale(step);
  }
};

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, const OptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  if (rule == nullptr) invalid("the rule of an optimizer is null");
  check_clipping(options.gradients);
  if (options.gradients.power_sgd) check_power_sgd(*options.gradients.power_sgd);
  check_reduce_as(options.gradients);
  check_loss_scale(options.gradients);
  if (options.gradients.accumulation_steps < 1)
    invalid("accumulation_steps must be at least 1, got ", options.gradients.accumulation_steps);
  check_learning_rate(options.learning_rate.value());
  if (const auto& decay = options.weight_decay.factor)
    check_not_negative("weight_decay", "the factor", *decay);
  state_->rule = std::move(rule);
  state_->options = options;
}

void Optimizer::minimize(const Value& loss, const std::vector<VariablePtr>& variables) const {
  apply_gradients(gradients(scale_loss(loss), variables), variables);
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
  state_->apply(gradients, variables, options.skip_gradients_aggregation);
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
  const auto now = [](const VariablePtr& variable, double at_first) {
    return variable ? variable->value().item() : at_first;
  };
  const LearningRate& given = state_->options.learning_rate;
  if (!given.schedule()) return now(state_->learning_rate, given.value());
  const double calls = now(state_->iterations, 0), skipped = now(state_->loss_scale.skipped, 0);
  const auto rate = [&](const std::vector<Value>& step) {
    return std::vector<Value>{rate_of(given.schedule(), step[0])};
  };
  const Tensor updates = Tensor::scalar(std::floor(calls / state_->accumulation_steps()) - skipped);
  return Function(rate)(std::vector<Tensor>{updates})[0].item();
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

std::vector<VariablePtr> Optimizer::variables() const {
  state_->make_counters();
  return state_->all;
}

const UpdateRule& Optimizer::rule() const { return *state_->rule; }

const OptimizerOptions& Optimizer::options() const { return state_->options; }

void Optimizer::build(const std::vector<VariablePtr>& variables) const {
  check_variables(variables);
  state_->make_counters();
  for (const VariablePtr& variable : variables) state_->slots_of(variable);
}

}  // namespace cohort::optim
