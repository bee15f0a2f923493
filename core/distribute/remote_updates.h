#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/graph/gradients.h"
#include "core/runtime/variable.h"

namespace cohort {

namespace optim {
class UpdateRule;
}  // namespace optim

// What a variable that each process has apart holds, of what comes before gradients are sent.
enum class KeptApart {
  kState,  // what goes on from one call to the next
  kSum,    // gradients that have not been sent yet: 0 where there are none
  kCount,  // the calls whose gradients wait in sums, a whole number
};

// For strategies whose variables live where the step does not run: their updates are made there, by
// the optimizer's rule, from gradients that are sent. Whatever comes before (reducing over the
// replicas, accumulating, clipping, the learning rate's schedule) stays part of the step.
class RemoteUpdates {
 public:
  virtual ~RemoteUpdates() = default;

  // From now on `rule` moves `variable`. `weight_decay` is the factor of optim::WeightDecay, 0 for
  // none. Returns variables that stand for what the rule keeps, under these names, one for each of
  // its slots. kInvalidArgument for a variable that was not made under the strategy.
  virtual std::vector<std::shared_ptr<Variable>> attach(
      const std::shared_ptr<Variable>& variable, const optim::UpdateRule& rule, double weight_decay,
      const std::vector<std::string>& slot_names) = 0;

  // Whether a rule moves it, by attach() in this process.
  virtual bool is_attached(const std::shared_ptr<Variable>& variable) const = 0;

  // What a process does before it sends goes by this variable, such as a sum of gradients or a loss
  // scale: each process that runs steps has one of its own, wherever that is. It starts with 0,
  // unless it is kState.
  virtual void keep_apart(const std::shared_ptr<Variable>& variable, KeptApart kept) = 0;

  // In the place of a step for which this process has no rows: it sends nothing, and others go on
  // as after a step. REQUIRES: !waits_for_others().
  virtual void skip_step() = 0;

  // Whether an update takes a gradient of every process, so that each has to send one.
  virtual bool waits_for_others() const = 0;

  // What comes with a gradient: scalars that are the same on every replica.
  struct PushOptions {
    Value learning_rate = {};  // float64
    // float64: which of the optimizer's updates this is, from 1, as far as this process knows; none
    // where the rule does not ask.
    Value step = {};
    // float64, not negative: what it weighs in a mean with gradients of other processes; none: 1.
    Value weight = {};
    Value when = {};  // bool: at run time, whether to send it; none: always
  };
  // While a step is traced: sends a reduced gradient to an attached variable.
  virtual void push(const std::shared_ptr<Variable>& variable, const Gradient& gradient,
                    const PushOptions& options) = 0;
};

}  // namespace cohort
