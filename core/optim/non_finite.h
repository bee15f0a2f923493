#pragma once

#include <memory>
#include <vector>

#include "core/optim/optimizer.h"

// Gradients with elements that are NaN or infinite (NonFinite). Internal to core/optim.
namespace cohort::optim {

// kInvalidArgument for what does not go together with the policy.
void check_non_finite(const GradientOptions& options);

// Whether all elements are finite: a bool scalar. It asks the sum of each gradient, which an
// element that is not finite makes so, whatever the others are; that only the sum is not takes
// elements near the end of float32's range.
Value all_finite(const std::vector<Value>& gradients);

// A replica's own gradients as they go on to be accumulated and summed over replicas: with kZero
// without what is not finite, with kError only where all of them are finite, else as they are.
std::vector<Gradient> treat_non_finite(NonFinite policy, const std::vector<Gradient>& gradients,
                                       const std::vector<std::shared_ptr<Variable>>& variables);

}  // namespace cohort::optim
