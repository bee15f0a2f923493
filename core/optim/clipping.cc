#include "core/optim/clipping.h"

#include <cmath>

#include "core/ops/math_ops.h"

namespace cohort::optim {
namespace {

// In float64, whose squares of float32s are finite.
Value squared_norm(const Value& x) {
  return ops::reduce_sum(ops::square(ops::cast(x, DType::kFloat64)));
}

// The factor that brings a norm down to `limit`, 1 where it is lower.
Value shrinking(const Value& squared_norm, double limit) {
  return limit / ops::maximum(ops::sqrt(squared_norm), ops::constant(limit, DType::kFloat64));
}

Value scaled(const Value& x, const Value& factor) { return x * ops::cast(factor, x.dtype()); }

}  // namespace

void check_clipping(const GradientOptions& options) {
  int used = 0;
  for (const double limit : {options.clipvalue, options.clipnorm, options.global_clipnorm}) {
    if (!(limit >= 0 && std::isfinite(limit)))
      invalid("clipvalue, clipnorm and global_clipnorm must be finite and not negative, got ",
              limit);
    used += limit > 0 ? 1 : 0;
  }
  if (used > 1) invalid("only one of clipvalue, clipnorm and global_clipnorm may be set");
}

Clipping::Clipping(const std::vector<Value>& gradients, const GradientOptions& options)
    : options_(options) {
  if (options.global_clipnorm == 0 || gradients.empty()) return;
  Value sum = squared_norm(gradients[0]);
  for (size_t i = 1; i < gradients.size(); ++i) sum = sum + squared_norm(gradients[i]);
  global_factor_ = shrinking(sum, options.global_clipnorm);
}

Value Clipping::operator()(const Value& gradient) const {
  if (options_.clipvalue > 0) return ops::clip(gradient, -options_.clipvalue, options_.clipvalue);
  if (options_.clipnorm > 0)
    return scaled(gradient, shrinking(squared_norm(gradient), options_.clipnorm));
  return global_factor_.defined() ? scaled(gradient, global_factor_) : gradient;
}

}  // namespace cohort::optim
