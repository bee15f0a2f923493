#pragma once

#include <vector>

#include "core/optim/optimizer.h"

// How gradients become sums over replicas. Internal to core/optim.
namespace cohort::optim {

// The places of those gradients that exist, in the order in which these become ready.
std::vector<size_t> ready_order(const std::vector<Gradient>& gradients);

// What Strategy::reduce_gradients promises, with the sums of float32 in `dtype`.
std::vector<Gradient> reduce_rounded(DType dtype, const std::vector<Gradient>& gradients,
                                     const Value& when);

// Of gradients that are the same on every replica, some whose sum they are.
std::vector<Gradient> of_first_replica(const std::vector<Gradient>& gradients);

// kInvalidArgument for a dtype that sums are not taken in, and with what it does not go together.
void check_reduce_as(const GradientOptions& options);

}  // namespace cohort::optim
