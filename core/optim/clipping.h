#pragma once

#include <vector>

#include "core/optim/optimizer.h"

namespace cohort::optim {

bool clips(const GradientOptions& options);

// The dense gradients clipped as the options say. kInvalidArgument where they are negative or more
// than one is on.
void check_clipping(const GradientOptions& options);
std::vector<Value> clip_gradients(const std::vector<Value>& gradients,
                                  const GradientOptions& options);

}  // namespace cohort::optim
