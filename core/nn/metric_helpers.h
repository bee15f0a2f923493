#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/error.h"
#include "core/nn/losses.h"
#include "core/nn/metrics.h"
#include "core/ops/math_ops.h"

// What metrics share. Internal to core/nn.
namespace cohort::metrics {

// numerator / denominator, 0 where there is nothing to divide by.
inline double ratio(double numerator, double denominator) {
  return denominator != 0 ? numerator / denominator : 0;
}

// Sums may be from a file, and then of another metric of the same name.
inline void require_size(const State& state, size_t size) {
  if (state.size() != size)
    fail(Code::kFailedPrecondition, "a metric has ", state.size(),
         " sums so far, and a batch adds to ", size,
         ": they are not of the same metric with the same options");
}

// 16-bit numbers and what is not floating as float32; others as they are.
inline Value as_float(const Value& x) {
  return is_floating(x.dtype()) ? losses::widened(x) : ops::cast(x, DType::kFloat32);
}

// The classes [.., k] of the highest predictions.
inline Value best_classes(const Value& y_pred, int64_t k) {
  return ops::top_k(y_pred, std::min(k, y_pred.shape().dim(-1))).indices;
}

}  // namespace cohort::metrics
