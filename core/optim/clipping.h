#pragma once

#include <vector>

#include "core/optim/optimizer.h"

namespace cohort::optim {

// kInvalidArgument where the options are negative or not finite, or more than one is on.
void check_clipping(const GradientOptions& options);

// Clips the gradients of one step: each is given as its elements, for a sparse one those of its
// rows, each row once.
class Clipping {
 public:
  Clipping(const std::vector<Value>& gradients, const GradientOptions& options);
  Value operator()(const Value& gradient) const;

 private:
  GradientOptions options_;
  Value global_factor_;  // none unless by the global norm
};

}  // namespace cohort::optim
