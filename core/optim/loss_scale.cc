#include "core/optim/loss_scale.h"

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::optim {
namespace {

constexpr double kLowest = 1;
// Steps whose gradients are 0 would raise the scale until it was infinite itself.
constexpr double kHighest = 0x1p60;

}  // namespace

void check_loss_scale(const GradientOptions& options) {
  if (!options.loss_scale) return;
  const auto& [initial, growth_steps] = *options.loss_scale;
  if (!(initial >= kLowest && initial <= kHighest))
    invalid("initial_scale of the loss scale must be from 1 to 2^60, got ", initial);
  if (growth_steps < 1)
    invalid("dynamic_growth_steps of the loss scale must be at least 1, got ", growth_steps);
  if (options.power_sgd)
    invalid(
        "loss_scale and power_sgd cannot both be set: what the compression keeps back would be of "
        "gradients of another scale");
  if (options.non_finite != NonFinite::kKeep)
    invalid(
        "loss_scale and non_finite cannot both be set: loss scaling leaves out, on all replicas, "
        "every update whose gradients are not finite");
}

NextLossScale next_loss_scale(const LossScaleState& state, const LossScale& options,
                              const Value& good, const Value& failed) {
  const Value scale = state.scale->read(), counter = state.counter->read();
  const auto number = [](double value, const Value& like) {
    return ops::constant(value, like.dtype());
  };
  const auto chosen = [&](const Value& before, const Value& after_good, const Value& after_failed) {
    return ops::where(good, after_good, ops::where(failed, after_failed, before));
  };
  const Value longer = counter + 1.0, none = number(0, counter);
  const Value grows = ops::greater_equal(
      longer, number(static_cast<double>(options.dynamic_growth_steps), counter));
  const Value higher = ops::minimum(scale * 2.0, number(kHighest, scale));
  const Value lower = ops::maximum(scale / 2.0, number(kLowest, scale));
  const Value goes_on =
      ops::logical_not(ops::logical_and(failed, ops::less_equal(scale, number(kLowest, scale))));
  return {ops::require(chosen(scale, ops::where(grows, higher, scale), lower), goes_on,
                       "gradients are not finite, even with the lowest loss scale, 1"),
          chosen(counter, ops::where(grows, none, longer), none)};
}

}  // namespace cohort::optim
