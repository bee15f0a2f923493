#pragma once

#include <memory>

#include "core/optim/optimizer.h"

// The arithmetic of dynamic loss scaling (LossScale), as nodes of the step: the host decides
// nothing. Internal to core/optim.
namespace cohort::optim {

// kInvalidArgument for numbers out of range, naming the option, and with what it does not go
// together.
void check_loss_scale(const GradientOptions& options);

// What is kept between steps, the same on all replicas. Null without loss scaling.
struct LossScaleState {
  std::shared_ptr<Variable> scale;    // float64 scalar
  std::shared_ptr<Variable> counter;  // int64: updates since the scale has last changed
};

// The scale and the counter after this step, which has made an update (`good`), has left one out
// (`failed`), or neither, while gradients are accumulated. Asking for the scale is kOutOfRange, at
// run time, where it would have to fall below 1.
struct NextLossScale {
  Value scale, counter;
};
NextLossScale next_loss_scale(const LossScaleState& state, const LossScale& options,
                              const Value& good, const Value& failed);

}  // namespace cohort::optim
