#pragma once

#include <memory>
#include <vector>

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
  std::shared_ptr<Variable> skipped;  // int64: updates that were left out so far
};

// Whether all elements are finite: a bool scalar. It asks the sum of each gradient, which an
// element that is not finite makes so, whatever the others are; that only the sum is not takes
// elements near the end of float32's range, which no scale is meant for.
Value all_finite(const std::vector<Value>& gradients);

// The scale and the counter after this step, which has made an update (`good`), has left one out
// (`failed`), or neither, while gradients are accumulated. Asking for the scale is kOutOfRange, at
// run time, where it would have to fall below 1.
struct NextLossScale {
  Value scale, counter;
};
NextLossScale next_loss_scale(const LossScaleState& state, const LossScale& options,
                              const Value& good, const Value& failed);

}  // namespace cohort::optim
