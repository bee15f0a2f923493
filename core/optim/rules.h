#pragma once

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "core/optim/optimizer.h"

// What the update rules of this folder share.
namespace cohort::optim {

// The optimizer of a rule, from the options that all optimizers have.
template <typename Options>
Optimizer make_optimizer(std::shared_ptr<const UpdateRule> rule, LearningRate&& learning_rate,
                         const Options& options) {
  return Optimizer(std::move(rule), {.learning_rate = std::move(learning_rate),
                                     .gradients = options.gradients,
                                     .weight_decay = options.weight_decay,
                                     .groups = options.groups,
                                     .ema = options.ema,
                                     .name = options.name});
}

// kInvalidArgument naming the optimizer and the argument unless 0 <= value < 1.
inline void check_fraction(std::string_view optimizer, std::string_view argument, double value) {
  if (!(value >= 0 && value < 1))
    invalid(optimizer, ": ", argument, " must be in [0, 1), got ", value);
}

// kInvalidArgument unless 0 <= value < infinity.
inline void check_not_negative(std::string_view optimizer, std::string_view argument,
                               double value) {
  if (!(value >= 0 && std::isfinite(value)))
    invalid(optimizer, ": ", argument, " must be finite and not negative, got ", value);
}

}  // namespace cohort::optim
