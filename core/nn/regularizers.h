#pragma once

#include <functional>

#include "core/graph/graph.h"

// Penalties on weights, added to the loss by training code.
namespace cohort::regularizers {

// A weight to a scalar penalty.
using Regularizer = std::function<Value(const Value& weight)>;

Regularizer l1(double factor = 0.01);                           // factor * sum |w|
Regularizer l2(double factor = 0.01);                           // factor * sum w^2
Regularizer l1_l2(double l1_factor = 0, double l2_factor = 0);  // the sum of both

}  // namespace cohort::regularizers
