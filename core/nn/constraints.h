#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/graph/graph.h"

// What weights are kept to, by Keras' names, defaults and formulas: applied to the new value after
// each update, under any strategy but ParameterServerStrategy. Norms are L2 norms along `axes`,
// over which they are added up: those of dense kernels [inputs, units] along axis 0 are of what
// leads to a unit, those of convolutions have the axes {0, 1, 2}. Numbers out of range are
// kInvalidArgument.
namespace cohort::constraints {

// A weight to one of the same shape and dtype.
using Constraint = std::function<Value(const Value& weight)>;

Constraint non_neg();  // negative elements are 0
Constraint max_norm(double max_value = 2, std::vector<int64_t> axes = {0});
Constraint unit_norm(std::vector<int64_t> axes = {0});

struct MinMaxNormOptions {
  double min_value = 0;
  double max_value = 1;
  double rate = 1;  // in (0, 1]: how much of the way to the bounds an update goes
  std::vector<int64_t> axes = {0};
};
Constraint min_max_norm(const MinMaxNormOptions& options = {});

}  // namespace cohort::constraints
