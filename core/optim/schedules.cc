#include "core/optim/schedules.h"

#include <cmath>
#include <numbers>

#include "core/ops/math_ops.h"
#include "core/optim/rules.h"

namespace cohort::optim {

LearningRate::LearningRate(Schedule schedule) : schedule_(std::move(schedule)) {
  if (!schedule_) invalid("the schedule of a learning rate is empty");
}

namespace schedules {
namespace {

Value number(double value) { return ops::constant(value, DType::kFloat64); }

void check_positive(const char* schedule, const char* argument, double value) {
  if (!(value > 0 && std::isfinite(value)))
    invalid(schedule, ": ", argument, " must be finite and positive, got ", value);
}

}  // namespace

Schedule PiecewiseConstantDecay(std::vector<double> boundaries, std::vector<double> values) {
  if (values.size() != boundaries.size() + 1)
    invalid("PiecewiseConstantDecay: ", boundaries.size(), " boundaries need ",
            boundaries.size() + 1, " values, got ", values.size());
  for (const double value : values)
    check_not_negative("PiecewiseConstantDecay", "each value", value);
  for (size_t i = 0; i < boundaries.size(); ++i)
    if (std::isnan(boundaries[i]) || (i > 0 && !(boundaries[i - 1] < boundaries[i])))
      invalid("PiecewiseConstantDecay: the boundaries must rise");
  return [boundaries = std::move(boundaries), values = std::move(values)](const Value& step) {
    Value rate = number(values.back());
    for (size_t i = boundaries.size(); i-- > 0;)
      rate = ops::where(ops::less_equal(step, number(boundaries[i])), number(values[i]), rate);
    return rate;
  };
}

Schedule ExponentialDecay(double initial, double decay_steps, double decay_rate, bool staircase) {
  check_not_negative("ExponentialDecay", "initial", initial);
  check_positive("ExponentialDecay", "decay_steps", decay_steps);
  check_positive("ExponentialDecay", "decay_rate", decay_rate);
  return [=](const Value& step) {
    const Value periods = step / decay_steps;
    return initial * ops::exp((staircase ? ops::floor(periods) : periods) * std::log(decay_rate));
  };
}

Schedule CosineDecay(double initial, double decay_steps, const CosineDecayOptions& options) {
  check_not_negative("CosineDecay", "initial", initial);
  check_positive("CosineDecay", "decay_steps", decay_steps);
  if (!(options.alpha >= 0 && options.alpha <= 1))
    invalid("CosineDecay: alpha must be in [0, 1], got ", options.alpha);
  if (!(options.warmup_steps >= 0 && std::isfinite(options.warmup_steps)))
    invalid("CosineDecay: warmup_steps must be finite and not negative, got ",
            options.warmup_steps);
  if (options.warmup_steps > 0 && !options.warmup_target)
    invalid("CosineDecay: ", options.warmup_steps,
            " warmup_steps need a warmup_target, the rate to reach in them");
  const double warmup = options.warmup_steps, alpha = options.alpha;
  const double highest = options.warmup_target.value_or(initial);
  check_not_negative("CosineDecay", "warmup_target", highest);
  return [=](const Value& step) {
    const Value done = ops::clip((step - warmup) / decay_steps, 0, 1);
    const Value cosine = 0.5 * (1.0 + ops::cos(done * std::numbers::pi));
    const Value decayed = highest * ((1 - alpha) * cosine + alpha);
    if (warmup == 0) return decayed;
    const Value warming = initial + (highest - initial) * (step / warmup);
    return ops::where(ops::less(step, number(warmup)), warming, decayed);
  };
}

Schedule PolynomialDecay(double initial, double decay_steps,
                         const PolynomialDecayOptions& options) {
  check_not_negative("PolynomialDecay", "initial", initial);
  check_not_negative("PolynomialDecay", "end", options.end);
  check_positive("PolynomialDecay", "decay_steps", decay_steps);
  check_positive("PolynomialDecay", "power", options.power);
  return [=](const Value& step) {
    Value done = ops::minimum(step / decay_steps, number(1));
    if (options.cycle) {
      const Value cycles = ops::maximum(-ops::floor(-step / decay_steps), number(1));
      done = ops::minimum(step / (decay_steps * cycles), number(1));  // however it is rounded
    }
    return (initial - options.end) * ops::pow(1.0 - done, number(options.power)) + options.end;
  };
}

}  // namespace schedules
}  // namespace cohort::optim
