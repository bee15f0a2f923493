#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/optim/loss_scale.h"
#include "core/optim/optimizer.h"
#include "core/optim/power_sgd.h"

// What an optimizer is made of and keeps. Internal to core/optim.
namespace cohort::optim {

using VariablePtr = std::shared_ptr<Variable>;

// The learning rate of a schedule after so many updates: a float64 scalar.
Value scheduled_rate(const Schedule& schedule, const Value& updates);

struct Optimizer::State {
  // What is kept for one variable.
  struct Slots {
    std::vector<VariablePtr> of_rule;
    // The sum of this replica's gradients since the last update; null without accumulation.
    VariablePtr accumulator;
    PowerSgdState power_sgd;
    VariablePtr average;  // null without ema, and of integers
  };

  std::shared_ptr<const UpdateRule> rule;
  OptimizerOptions options;
  VariablePtr iterations, learning_rate;
  // Where `iterations` counts the calls of other processes too, those of this one since its last
  // update, for accumulation; else null.
  VariablePtr own_calls;
  LossScaleState loss_scale;
  // Updates that were left out so far, int64; null where none ever is.
  VariablePtr skipped_updates;
  std::map<VariablePtr, Slots> slots;
  std::vector<VariablePtr> all;  // in the order in which they were made
  std::set<std::string> warned;

  void make_counters();
  // For what may be asked before training: that makes no variables, because they are those of the
  // strategy of the training, which need not be current. While a function is traced it does, and
  // they refuse what would act once.
  void make_counters_of_trace();
  const Slots& slots_of(const VariablePtr& variable);

  bool scales_loss() const { return options.gradients.loss_scale.has_value(); }
  // Whether an update is left out where the sum of a gradient is not finite.
  bool skips_updates() const {
    return scales_loss() || options.gradients.non_finite == NonFinite::kSkip;
  }
  bool averages() const { return options.ema.has_value(); }
  bool accumulates() const { return options.gradients.accumulation_steps > 1; }
  double accumulation_steps() const {
    return static_cast<double>(options.gradients.accumulation_steps);
  }

  // Made so far, by all processes; outside functions.
  double updates() const;
  // Those variables that have one, with it; none before the first update. Outside functions.
  std::vector<std::pair<VariablePtr, VariablePtr>> averages_of(
      const std::vector<VariablePtr>& variables) const;

  // The factor of weight decay; 0: none.
  double decay_of(const Variable& variable) const;
  bool decays(const Variable& variable) const { return decay_of(variable) != 0; }
  // That of its group.
  double rate_multiplier_of(const Variable& variable) const;
  // Requires that all that groups name is among these variables, if they are the first ones.
  void check_groups_name(const std::vector<VariablePtr>& variables) const;

  // Of one that replicas have put together already, each of them has the gradient.
  void warn_of_shared_loss(const Value& loss);

  // While a step is traced: Optimizer::apply_gradients.
  void apply(const std::vector<Gradient>& gradients, const std::vector<VariablePtr>& variables,
             const ApplyOptions& how);

 private:
  class Step;

  const VariablePtr& add(VariablePtr variable) { return all.emplace_back(std::move(variable)); }
  VariablePtr make_scalar(std::string_view what, DType dtype, double initial = 0,
                          Synchronization synchronization = Synchronization::kAuto) const;
  // Of updates that are left out.
  void make_skipping();
  // Where updates are made elsewhere, each process has a scale of its own.
  void make_loss_scale();
  PowerSgdState make_power_sgd_state(const Variable& variable, const PowerSgdOptions& low_rank,
                                     const std::function<std::string(const std::string&)>& name_of);

  void warn_without_gradient(const Variable& variable);
  void warn_of_exclusions(const std::vector<VariablePtr>& variables);
  void warn_without_variables();
  void warn_of_equal_names(const std::vector<VariablePtr>& variables);
};

}  // namespace cohort::optim
