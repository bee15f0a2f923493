#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/distribute/remote_updates.h"
#include "core/graph/value_map.h"
#include "core/optim/loss_scale.h"
#include "core/optim/optimizer.h"
#include "core/optim/power_sgd.h"

// What an optimizer keeps, and how its updates are traced. Internal to core/optim.
namespace cohort::optim {

using VariablePtr = std::shared_ptr<Variable>;

// The learning rate of a schedule after so many updates: a float64 scalar.
Value rate_of(const Schedule& schedule, const Value& updates);

struct Optimizer::State {
  // What is kept for one variable.
  struct Slots {
    std::vector<VariablePtr> of_rule;
    // The sum of this replica's gradients since the last update; null without accumulation.
    VariablePtr accumulator;
    PowerSgdState power_sgd;
  };
  // What variables of one multiplier of the learning rate share in a step.
  struct Rate {
    Value learning_rate;         // float64
    std::vector<Value> scalars;  // float64, of the rule
  };
  // What all variables share while one step is traced.
  struct Step {
    Value calls;                   // made before this one: int64
    Value number;                  // of the update, from 1: float64
    std::map<double, Rate> rates;  // by their multipliers, of which 1 is one
    Value is_update;               // bool, or none: every call is one
    Value applies;                 // whether an update is made, and
    Value skips;                   // whether it is left out; none: as is_update, and never
    ValueMap<std::map<DType, Value>> casts;

    // `finite`: whether all gradients are.
    void decide(const Value& finite);
    // The scalar in this dtype, cast once.
    Value as(DType dtype, const Value& scalar);
  };
  // A variable with the gradient to move it along.
  struct Move {
    VariablePtr variable;
    Gradient gradient;
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

  // --- Counters and slots

  void make_counters();
  // For what may be asked before training: that makes no variables, because they are those of the
  // strategy of the training, which need not be current. While a function is traced it does, and
  // they refuse what would act once.
  void make_counters_of_trace();
  const Slots& slots_of(const VariablePtr& variable);

  bool scales_loss() const { return options.gradients.loss_scale.has_value(); }
  bool accumulates() const { return options.gradients.accumulation_steps > 1; }
  double accumulation_steps() const {
    return static_cast<double>(options.gradients.accumulation_steps);
  }

  // The factor of weight decay; 0: none.
  double decay_of(const Variable& variable) const;
  bool decays(const Variable& variable) const { return decay_of(variable) != 0; }
  // That of its group.
  double rate_multiplier_of(const Variable& variable) const;
  // Requires that all that groups name is among these variables, if they are the first ones.
  void check_groups_name(const std::vector<VariablePtr>& variables) const;

  // --- A step, while it is traced

  void apply(const std::vector<Gradient>& gradients, const std::vector<VariablePtr>& variables,
             bool are_sums);

 private:
  const VariablePtr& add(VariablePtr variable) { return all.emplace_back(std::move(variable)); }
  VariablePtr make_scalar(std::string_view what, DType dtype, double initial = 0,
                          Synchronization synchronization = Synchronization::kAuto) const;
  // Where updates are made elsewhere, each process has a scale of its own.
  void make_loss_scale();
  PowerSgdState make_power_sgd_state(const Variable& variable, const PowerSgdOptions& low_rank,
                                     const std::function<std::string(const std::string&)>& name_of);

  void warn_without_gradient(const Variable& variable);
  void warn_of_exclusions(const std::vector<VariablePtr>& variables);
  void warn_without_variables();

  static std::vector<Value> values_of(const std::vector<Move>& moves);
  // Computes what all variables share.
  Step begin_step();
  // Whether this call is the last before an update of this process.
  Value count_own_call() const;
  // What other processes have skipped may be counted here before they are counted as calls.
  Value without_skipped(const Value& updates) const;
  // Adds each of a replica's gradients to those of the calls before. The result is what to sum over
  // the replicas if this call is an update: the means.
  std::vector<Gradient> accumulate(const Step& step, const std::vector<Gradient>& gradients,
                                   const std::vector<VariablePtr>& variables);
  // Sums a replica's gradients over all of them.
  std::vector<Gradient> reduce(const Step& step, const std::vector<Gradient>& gradients,
                               const std::vector<VariablePtr>& variables);
  // What an update of this call takes.
  std::vector<Gradient> sums(const Step& step, const std::vector<Gradient>& gradients,
                             const std::vector<VariablePtr>& variables, bool are_sums);
  // The reduced gradient in the form in which it is applied: by rows, each once, or dense.
  Gradient prepared(const Variable& variable, const Gradient& gradient) const;
  // Takes the loss scale off, and decides whether to make the update.
  void unscale(Step& step, std::vector<Move>& moves) const;
  void adjust_loss_scale(const Step& step) const;
  void update(Step& step, const Move& move);
  void push(RemoteUpdates& remote, const Step& step, const std::vector<Move>& moves) const;
};

}  // namespace cohort::optim
