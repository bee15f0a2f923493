#pragma once

#include <memory>
#include <vector>

#include "core/optim/optimizer.h"

// Sums of gradients over replicas as products of two narrow matrices (PowerSgdOptions). A variable
// is a matrix whose columns are its last axis. Internal to core/optim.
namespace cohort::optim {

// kInvalidArgument, naming the option.
void check_power_sgd(const PowerSgdOptions& options);

// Whether gradients of a variable of this shape are compressed.
bool is_low_rank(const Shape& variable, const PowerSgdOptions& options);

// The first directions of a variable: [columns, rank], the same for equal options and names.
Tensor initial_directions(const Variable& variable, const PowerSgdOptions& options);

// What is kept for a variable, by each replica; null where it is not needed.
struct PowerSgdState {
  std::shared_ptr<Variable> residual;    // of the variable's spec: what was not sent yet
  std::shared_ptr<Variable> directions;  // the last right factor
};

// While a step is traced: what Strategy::reduce_gradients promises, but for the compression.
// `states` are those of the gradients' variables, and `update` counts the updates before this one:
// a float64 scalar.
std::vector<Gradient> reduce_low_rank(const std::vector<Gradient>& gradients,
                                      const std::vector<PowerSgdState>& states,
                                      const PowerSgdOptions& options, const Value& update,
                                      const Value& when);

}  // namespace cohort::optim
