#include "core/optim/optimizer_state.h"

#include <algorithm>
#include <cmath>

#include "core/base/notice.h"
#include "core/distribute/remote_updates.h"
#include "core/distribute/row_variable.h"
#include "core/distribute/strategy.h"
#include "core/graph/op.h"
#include "core/ops/math_ops.h"
#include "core/optim/ema.h"
#include "core/optim/variable_groups.h"
#include "core/optim/variable_path.h"

namespace cohort::optim {
namespace {

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

}  // namespace

VariablePtr Optimizer::State::make_scalar(std::string_view what, DType dtype, double initial,
                                          Synchronization synchronization) const {
  return make_state(str(options.name, "/", what), {dtype, {}}, initial, synchronization);
}

void Optimizer::State::make_counters() {
  if (averages()) require_averages(current_strategy());
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
  if (skips_updates() && skipped_updates == nullptr) make_skipping();
}

void Optimizer::State::make_counters_of_trace() {
  if (has_current_graph()) make_counters();
}

void Optimizer::State::make_skipping() {
  RemoteUpdates* const remote = current_strategy().remote_updates();
  if (remote && remote->waits_for_others())
    fail(Code::kUnimplemented, scales_loss() ? "loss scaling" : "non_finite = kSkip", " under ",
         current_strategy().name(),
         " needs updates that do not wait for gradients of all workers: one whose gradients are "
         "not finite sends none",
         scales_loss() ? "" : "; kError and kZero are allowed");
  if (scales_loss()) make_loss_scale();
  skipped_updates = add(make_scalar("skipped_updates", DType::kInt64));
  if (remote) remote->attach(skipped_updates, CountRule(), 0, {});
}

void Optimizer::State::make_loss_scale() {
  const bool is_apart = current_strategy().remote_updates() != nullptr;
  const auto kept = is_apart ? Synchronization::kOnRead : Synchronization::kAuto;
  const double initial = options.gradients.loss_scale->initial_scale;
  loss_scale = {add(kept_apart(make_scalar("dynamic_scale", DType::kFloat64, initial, kept))),
                add(kept_apart(make_scalar("dynamic_counter", DType::kInt64, 0, kept)))};
}

const Optimizer::State::Slots& Optimizer::State::slots_of(const VariablePtr& variable) {
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
      made.of_rule.push_back(make_state(name_of(slot.name), variable->spec(), slot.initial, kept));
  }
  if (accumulates()) {
    if (as_row_variable(*variable) != nullptr)
      invalid("the gradients of variable \"", variable->name(),
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
  if (averages() && is_floating(variable->spec().dtype))
    made.average = add(make_average(*variable, name_of("average")));
  return slots.emplace(variable, std::move(made)).first->second;
}

PowerSgdState Optimizer::State::make_power_sgd_state(
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

double Optimizer::State::updates() const {
  const auto count = [](const VariablePtr& calls) { return calls ? calls->value().item() : 0.0; };
  return std::floor(count(iterations) / accumulation_steps()) - count(skipped_updates);
}

std::vector<std::pair<VariablePtr, VariablePtr>> Optimizer::State::averages_of(
    const std::vector<VariablePtr>& variables) const {
  std::vector<std::pair<VariablePtr, VariablePtr>> found;
  if (!averages() || updates() < 1) return found;
  for (const VariablePtr& variable : variables)
    if (const auto known = slots.find(variable); known != slots.end() && known->second.average)
      found.emplace_back(variable, known->second.average);
  return found;
}

double Optimizer::State::decay_of(const Variable& variable) const {
  if (is_named_by(variable.name(), options.weight_decay.exclude)) return 0;
  const VariableGroup* const group = group_of(variable, options.groups);
  if (group && group->weight_decay) return *group->weight_decay;
  return options.weight_decay.factor.value_or(0);
}

double Optimizer::State::rate_multiplier_of(const Variable& variable) const {
  const VariableGroup* const group = group_of(variable, options.groups);
  return group ? group->learning_rate_multiplier : 1;
}

void Optimizer::State::check_groups_name(const std::vector<VariablePtr>& variables) const {
  if (slots.empty() && !variables.empty()) require_named(options.groups, variables);
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

void Optimizer::State::warn_of_equal_names(const std::vector<VariablePtr>& variables) {
  std::set<std::string> names;
  for (const VariablePtr& variable : variables)
    if (!names.insert(variable->name()).second && warned.insert("equal names").second)
      print_notice(str("warning: an optimizer was given two variables named \"", variable->name(),
                       "\": they cannot be saved together, and those of layers started out equal; "
                       "give one of their networks a name\n"));
}

void Optimizer::State::warn_of_shared_loss(const Value& loss) {
  if (loss.node().op().name != "AllReduce" || !warned.insert("all-reduced loss").second) return;
  const int replicas = traced_group().num_replicas;
  print_notice(str(
      "warning: the loss of an optimizer is the result of an all-reduce, which each of the ",
      replicas, " replicas counts: gradients are ", replicas,
      " times too large; minimize what each replica adds to it, or divide it by ", replicas, "\n"));
}

}  // namespace cohort::optim
