#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/graph/graph.h"

// Learning-rate schedules by Keras' names and formulas. They become part of the traced step: no
// host work. Arguments out of range are kInvalidArgument at once; rates are finite and not
// negative.
namespace cohort::optim {

// The learning rate as a function of the number of updates made so far, both float64 scalars.
using Schedule = std::function<Value(const Value& step)>;

// A learning rate: a number that may be changed between steps, or a schedule.
class LearningRate {
 public:
  LearningRate(double value) : value_(value) {}  // NOLINT: SGD(0.1)
  // kInvalidArgument for an empty one. NOLINTNEXTLINE: SGD(CosineDecay(..))
  LearningRate(Schedule schedule);
  double value() const { return value_; }
  const Schedule& schedule() const { return schedule_; }  // empty: a number

 private:
  double value_ = 0;
  Schedule schedule_;
};

namespace schedules {

// values[i] for steps up to and including boundaries[i], the last value after all; one more value
// than boundaries, which rise.
Schedule PiecewiseConstantDecay(std::vector<double> boundaries, std::vector<double> values);

// initial * decay_rate ^ (step / decay_steps); with `staircase` the quotient is rounded down.
Schedule ExponentialDecay(double initial, double decay_steps, double decay_rate,
                          bool staircase = false);

struct CosineDecayOptions {
  double alpha = 0;  // the final rate, as a fraction of the highest: in [0, 1]
  // The highest rate, reached linearly from `initial` in warmup_steps, which need it
  // (kInvalidArgument); without it, `initial` is the highest.
  std::optional<double> warmup_target = {};
  double warmup_steps = 0;
};
// Falls from the highest rate along half a cosine in decay_steps after the warm-up (Loshchilov and
// Hutter 2016).
Schedule CosineDecay(double initial, double decay_steps, const CosineDecayOptions& options = {});

struct PolynomialDecayOptions {
  double end = 1e-4;
  double power = 1;
  bool cycle = false;  // starts anew from `initial`, each cycle decay_steps longer
};
// (initial - end) (1 - step / decay_steps)^power + end, and `end` after decay_steps.
Schedule PolynomialDecay(double initial, double decay_steps,
                         const PolynomialDecayOptions& options = {});

}  // namespace schedules
}  // namespace cohort::optim
