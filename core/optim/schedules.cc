#include "core/optim/schedules.h"

#include <cmath>
#include <numbers>

#include "core/ops/math_ops.h"

namespace cohort::optim::schedules {
namespace {

Value number(double value) { return ops::constant(value, DType::kFloat64); }

void check_steps(const char* schedule, double decay_steps) {
  if (!(decay_steps > 0)) invalid(schedule, ": decay_steps must be positive, got ", decay_steps);
}

}  // namespace

Schedule PiecewiseConstantDecay(std::vector<double> boundaries, std::vector<double> values) {
  if (values.size() != boundaries.size() + 1)
    invalid("PiecewiseConstantDecay: ", boundaries.size(), " boundaries need ",
            boundaries.size() + 1, " values, got ", values.size());
  for (size_t i = 1; i < boundaries.size(); ++i)
    if (!(boundaries[i - 1] < boundaries[i]))
      invalid("PiecewiseConstantDecay: the boundaries must rise");
  return [boundaries = std::move(boundaries), values = std::move(values)](const Value& step) {
    Value rate = number(values.back());
    for (size_t i = boundaries.size(); i-- > 0;)
      rate = ops::where(ops::less_equal(step, number(boundaries[i])), number(values[i]), rate);
    return rate;
  };
}

Schedule ExponentialDecay(double initial, double decay_steps, double decay_rate, bool staircase) {
  check_steps("ExponentialDecay", decay_steps);
  if (!(decay_rate > 0)) invalid("ExponentialDecay: decay_rate must be positive, got ", decay_rate);
  return [=](const Value& step) {
    const Value periods = step / decay_steps;
    return initial * ops::exp((staircase ? ops::floor(periods) : periods) * std::log(decay_rate));
  };
}

Schedule CosineDecay(double initial, double decay_steps, const CosineDecayOptions& options) {
  check_steps("CosineDecay", decay_steps);
  if (!(options.warmup_steps >= 0))
    invalid("CosineDecay: warmup_steps must not be negative, got ", options.warmup_steps);
  if (options.warmup_steps > 0 && !options.warmup_target)
    invalid("CosineDecay: ", options.warmup_steps,
            " warmup_steps need a warmup_target, the rate to reach in them");
  const double warmup = options.warmup_steps, alpha = options.alpha;
  const double highest = options.warmup_target.value_or(initial);
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
  check_steps("PolynomialDecay", decay_steps);
  if (!(options.power > 0)) invalid("PolynomialDecay: power must be positive, got ", options.power);
  return [=](const Value& step) {
    Value done = ops::minimum(step / decay_steps, number(1));
    if (options.cycle) {
      const Value cycles = ops::maximum(-ops::floor(-step / decay_steps), number(1));
      done = step / (decay_steps * cycles);
    }
    return (initial - options.end) * ops::pow(1.0 - done, number(options.power)) + options.end;
  };
}

}  // namespace cohort::optim::schedules
