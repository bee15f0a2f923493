#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/gradients.h"
#include "core/optim/schedules.h"
#include "core/optim/update_rule.h"
#include "core/runtime/variable.h"
#include "core/tensor/dtype.h"

namespace cohort {

class Strategy;

namespace optim {

// PowerSGD (Vogels et al. 2019), with the defaults of PyTorch's hook but for start_iteration, where
// newer versions have 1000: instead of a gradient of rows x columns, replicas exchange the factors
// of a matrix of this rank, (rows + columns) * rank numbers, in two reductions. The rows of a
// variable are all its axes but the last. A sum of gradients of no higher rank is exact.
// kInvalidArgument for numbers out of range.
struct PowerSgdOptions {
  int64_t rank = 1;  // 1 at least
  // Updates from this one on, counted from 0, are compressed: 2 at least with error_feedback or
  // warm_start.
  int64_t start_iteration = 10;
  // Variables are compressed where (rows + columns) * rank * min_compression < rows * columns: 1 at
  // least.
  double min_compression = 2;
  // Adds what an update left out to the gradients of the next one. Each replica keeps it, in the
  // size of the variable.
  bool error_feedback = true;
  // Starts from the factor of the last update; else from random numbers, which replica 0 tells the
  // others in a third reduction.
  bool warm_start = true;
  uint64_t seed = 0;  // of the first factors
};

// Dynamic loss scaling (Micikevicius et al. 2018), with the names and defaults of Keras'
// LossScaleOptimizer, so that small gradients do not vanish in float16: gradients are taken of the
// loss times a scale, and divided by it once they are reduced. Where an element of any of them, on
// any replica, is not finite, the update is left out on all: variables and slots stay, it is not
// counted where the rule and schedules ask for the number of the update, and the scale is halved.
// At a scale of 1 the step is kOutOfRange instead. kInvalidArgument for numbers out of range.
struct LossScale {
  double initial_scale = 32768;         // from 1 to 2^60
  int64_t dynamic_growth_steps = 2000;  // doubled after so many updates in a row: 1 at least
};

// What becomes of gradients that are not finite: of those with an element that is NaN or infinite.
// What a forward pass has written, as moving statistics, stays in any case. All but kKeep cost a
// pass over the gradients at each step.
enum class NonFinite {
  kKeep,  // they are summed and applied like others
  // The step ends with kOutOfRange, which names the variable and, of several replicas, the one
  // whose own gradient it is, and the step; workers that train together all end with it. As with
  // any error of a replica, the variables of all are as they were, or it is their last step; on
  // GPUs the rest of that step takes place. Of calls that are accumulated each is looked at.
  kError,
  // No replica makes the update, as without the step: variables and slots stay, and it is not
  // counted where the rule and schedules ask for the number of the update, but in
  // "optimizer/skipped_updates". With accumulation_steps that is the whole update. It looks at the
  // sums over replicas, so that all know, and no update begins before the last of them is there.
  // Where updates are made elsewhere (ParameterServerStrategy), a worker sends none then, and it is
  // kUnimplemented where they wait for all workers. Not together with power_sgd.
  kSkip,
  // 0 takes the place of each such element, of each replica's own gradient in each call.
  kZero,
};

// What happens to gradients, after they were summed over all replicas, before they are applied.
// 0 turns a clipping off; at most one may be on.
struct GradientOptions {
  double clipvalue = 0;  // each element into [-clipvalue, clipvalue]
  double clipnorm = 0;   // each gradient scaled down to this L2 norm at most
  // All gradients scaled down together to this L2 norm at most (Pascanu et al. 2012).
  double global_clipnorm = 0;
  // Applies the mean of the gradients of this many calls at the last of them. Each replica adds up
  // its own; only the last call communicates. Schedules and bias corrections count updates, not
  // calls.
  int64_t accumulation_steps = 1;
  // How replicas sum dense gradients; none: as they are. The same with one replica, so that the
  // number of replicas makes no difference.
  std::optional<PowerSgdOptions> power_sgd = {};
  // bfloat16 or float16: in which dense float32 gradients are summed over replicas; none, like all
  // others: as they are. It halves what hosts exchange that have one replica each, and what NCCL
  // does; hosts of several exchange their sums, in float32. Each replica's gradient is divided by
  // the number of replicas before it is rounded, and the sum multiplied by it once it is float32.
  // So in float16 it is infinite, which loss scaling leaves out, where a replica's share of the
  // mean, or the mean, is beyond 65504. The same with one replica, and not together with power_sgd.
  std::optional<DType> reduce_as = {};
  // None: gradients are taken as they are. Not together with power_sgd.
  std::optional<LossScale> loss_scale = {};
  // Not together with loss_scale, which leaves such updates out; kError and kZero, which look at
  // gradients before they are summed, not together with reduce_as = float16, whose sums overflow.
  NonFinite non_finite = NonFinite::kKeep;
};

// Decoupled weight decay: variable -= variable * learning rate * factor before each update.
struct WeightDecay {
  // Not negative (kInvalidArgument). None: what the optimizer has by default, 0 for all but AdamW.
  std::optional<double> factor = {};
  // Leaves variables alone that one of these names, by one or more whole parts of their path, a
  // number at whose end may be left out: {"bias", "layer_normalization", "dense_1/kernel"}. One
  // that names none of the variables is told once in a warning.
  std::vector<std::string> exclude = {};
};

// Variables that are trained otherwise than the rest, such as a backbone at a tenth of the rate.
struct VariableGroup {
  // Those that one of these names, as WeightDecay::exclude does. Of several groups that name a
  // variable it is in the first. One that names none of the variables that the optimizer is given
  // first, by build() or while a step is traced, is kInvalidArgument then.
  std::vector<std::string> variables = {};
  // Of the learning rate, of a schedule too: finite and not negative (kInvalidArgument).
  double learning_rate_multiplier = 1;
  // In the place of WeightDecay::factor, with the same bounds; none: that. What is excluded from
  // decay is excluded in all groups.
  std::optional<double> weight_decay = {};
};

// An exponential moving average of each variable, with the meanings and defaults of Keras' use_ema:
// the first update makes it the variable, each further one momentum * average + (1 - momentum) *
// variable. Updates count, not calls: none that is accumulated or left out.
// Evaluate by the averages with callbacks::SwapEMAWeights; at the end of fit() they take the place
// of the variables, in a loop of one's own by finalize_variable_values(). Until then the variables
// are what is trained, saved and restored; checkpoints have the averages beside them, as
// "optimizer/average/dense/kernel". They follow every row, so that sparse gradients are made dense.
// kUnimplemented where updates are made elsewhere (ParameterServerStrategy), and for a variable of
// which replicas have values of their own. kInvalidArgument for numbers out of range.
struct EmaOptions {
  double momentum = 0.99;  // in [0, 1)
  // Variables also become their averages at every so many updates, 1 at least; none: never.
  std::optional<int64_t> overwrite_frequency = {};
};

// What every optimizer is made of besides its rule.
struct OptimizerOptions {
  LearningRate learning_rate = 0.001;
  GradientOptions gradients = {};
  WeightDecay weight_decay = {};
  std::vector<VariableGroup> groups = {};
  std::optional<EmaOptions> ema = {};  // none: no averages
  // In front of its variables' names: of two optimizers of one name the variables cannot be saved
  // together.
  std::string name = "optimizer";
};

// The gradient of `loss` with respect to each variable, wherever the function that is being traced
// has read it; none where the loss does not depend on it.
std::vector<Gradient> gradients(const Value& loss,
                                const std::vector<std::shared_ptr<Variable>>& variables);

// Of one call of Optimizer::apply_gradients.
struct ApplyOptions {
  // Gradients are applied as they are: their sum over replicas has been taken already, for instance
  // by ReplicaContext::all_reduce, in a way of one's own. They have to be the same on every
  // replica, or copies of a variable come to differ. Those of one that is not synchronised may:
  // each moves along its replica's own gradient. With accumulation_steps they count as those of the
  // first replica, and are summed as others are at the update. kUnimplemented where updates are
  // made elsewhere (ParameterServerStrategy).
  bool skip_gradients_aggregation = false;
  // A float64 scalar, the same on every replica: what the gradients weigh in a mean with those of
  // others who have stepped by themselves, as of synchronous workers of ParameterServerStrategy.
  // For the gradient of a mean over the rows of a batch it is their number, so that the mean is
  // that over all rows, and 0 for no rows. None: each weighs the same. Elsewhere, and with
  // accumulation_steps, it has no meaning.
  Value weight = {};
};

// Changes variables along gradients. A cheap handle; copies share state. The same under every
// strategy: it is traced as part of the step. Slots are made when a variable is first seen and
// named "optimizer/momentum/dense/kernel"; a variable without gradient is left alone and named once
// in a warning, which there is of two variables of one name, too. A sparse gradient touches its own
// rows only, of the variable and of its slots, where the rule says so (UpdateRule::row_wise: plain
// SGD, Adagrad, lazy Adam); else, and with decay, accumulation, a constraint or ema, which touch
// every row, it is made dense. Variables are updated in the order in which their gradients become
// ready. A list with a null variable, or with one twice, as where networks that share a layer are
// joined, is kInvalidArgument.
class Optimizer {
 public:
  // kInvalidArgument for a rule that is null or has two slots of one name, and options out of
  // range.
  Optimizer(std::shared_ptr<const UpdateRule> rule, const OptimizerOptions& options);

  // While tracing: gradients of this replica's share of the loss, summed over all replicas, then
  // applied, also to each copy of a variable that is not synchronised (Synchronization::kNone), for
  // which ApplyOptions has another way. A loss that is the same on all replicas, as what is
  // computed from the result of a collective may be, would be counted by each: divide it by their
  // number. A notice tells once of one that is the result of an all-reduce. `weight` as
  // ApplyOptions has it.
  void minimize(const Value& loss, const std::vector<std::shared_ptr<Variable>>& variables,
                const Value& weight = {}) const;
  // The same for gradients of one's own making, one a variable: they are summed over replicas here,
  // unless the options say that they have been. With loss scaling they are those of
  // scale_loss(loss). kFailedPrecondition where there are several replicas and the step is not run
  // by their strategy.
  void apply_gradients(const std::vector<Gradient>& gradients,
                       const std::vector<std::shared_ptr<Variable>>& variables,
                       const ApplyOptions& options = {}) const;

  // While tracing: the loss times the loss scale, which is 1 without loss scaling.
  Value scale_loss(const Value& loss) const;

  // Turns loss scaling on for what is traced from now on, unless it is on already. kInvalidArgument
  // with power_sgd.
  void use_loss_scale(const LossScale& options = {}) const;
  // That of the next step; 1 without loss scaling.
  double loss_scale() const;

  // Calls made so far: an int64 scalar, created under the strategy that is current at first use.
  const std::shared_ptr<Variable>& iterations() const;
  // The rate that the next update uses, which groups multiply. Setting it is kFailedPrecondition
  // under a schedule.
  double learning_rate() const;
  void set_learning_rate(double value) const;
  // Copies the averages of these variables into them. Without ema, and before there was an update,
  // it does nothing. Outside functions, by all workers.
  void finalize_variable_values(const std::vector<std::shared_ptr<Variable>>& variables) const;
  // The same, but that the averages get what the variables have had: once to evaluate by averages,
  // and once more to go on training.
  void swap_averages(const std::vector<std::shared_ptr<Variable>>& variables) const;
  // kUnimplemented for what cannot be done under this strategy: ema, where updates are made
  // elsewhere. compile() asks, and so does whatever makes the optimizer's first variables.
  void check_strategy(Strategy& strategy) const;
  // Everything to be saved: iterations, the learning rate unless scheduled, what loss scaling
  // keeps, the number of updates that were left out where any may be, and the slots and averages
  // made so far.
  std::vector<std::shared_ptr<Variable>> variables() const;
  // What it is made of, for whoever updates variables elsewhere.
  const UpdateRule& rule() const;
  const OptimizerOptions& options() const;
  // Makes all slots of these variables, so that a checkpoint can be restored before the first step.
  void build(const std::vector<std::shared_ptr<Variable>>& variables) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace optim
}  // namespace cohort
