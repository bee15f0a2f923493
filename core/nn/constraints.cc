#include "core/nn/constraints.h"

#include <cmath>

#include "core/base/error.h"
#include "core/ops/math_ops.h"

namespace cohort::constraints {
namespace {

Value norms(const Value& w, const std::vector<int64_t>& axes) {
  return ops::sqrt(ops::reduce_sum(ops::square(w), axes, /*keep_dims=*/true));
}

// w with other norms; 0 stays 0.
Value with_norms(const Value& w, const Value& before, const Value& after) {
  constexpr double kEpsilon = 1e-7;  // Keras'
  return w * (after / (before + kEpsilon));
}

void check_bound(const char* constraint, double value) {
  if (!(value >= 0 && std::isfinite(value)))
    invalid(constraint, ": a norm must be finite and not negative, got ", value);
}

}  // namespace

Constraint non_neg() {
  return [](const Value& w) { return ops::relu(w); };
}

Constraint max_norm(double max_value, std::vector<int64_t> axes) {
  check_bound("max_norm", max_value);
  return [=](const Value& w) {
    const Value before = norms(w, axes);
    return with_norms(w, before, ops::clip(before, 0, max_value));
  };
}

Constraint unit_norm(std::vector<int64_t> axes) {
  return [=](const Value& w) {
    const Value before = norms(w, axes);
    return with_norms(w, before, ops::constant(1, w.dtype()));
  };
}

Constraint min_max_norm(const MinMaxNormOptions& options) {
  check_bound("min_max_norm", options.min_value);
  check_bound("min_max_norm", options.max_value);
  if (options.min_value > options.max_value)
    invalid("min_max_norm: min_value ", options.min_value, " is above max_value ",
            options.max_value);
  if (!(options.rate > 0 && options.rate <= 1))
    invalid("min_max_norm: the rate must be in (0, 1], got ", options.rate);
  return [options](const Value& w) {
    const Value before = norms(w, options.axes),
                bounded = ops::clip(before, options.min_value, options.max_value);
    return with_norms(w, before, bounded * options.rate + before * (1 - options.rate));
  };
}

}  // namespace cohort::constraints
