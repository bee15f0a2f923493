#include "core/optim/clipping.h"

#include "core/ops/math_ops.h"

namespace cohort::optim {
namespace {

Value squared_norm(const Value& x) {
  return ops::cast(ops::reduce_sum(ops::square(x)), DType::kFloat64);
}

// The factor that brings a norm down to `limit`, 1 where it is lower.
Value shrinking(const Value& squared_norm, double limit) {
  return limit / ops::maximum(ops::sqrt(squared_norm), ops::constant(limit, DType::kFloat64));
}

Value scaled(const Value& x, const Value& factor) { return x * ops::cast(factor, x.dtype()); }

}  // namespace

bool clips(const GradientOptions& options) {
  return options.clipvalue > 0 || options.clipnorm > 0 || options.global_clipnorm > 0;
}

void check_clipping(const GradientOptions& options) {
  int used = 0;
  for (const double limit : {options.clipvalue, options.clipnorm, options.global_clipnorm}) {
    if (!(limit >= 0))
      invalid("clipvalue, clipnorm and global_clipnorm must not be negative, got ", limit);
    used += limit > 0 ? 1 : 0;
  }
  if (used > 1) invalid("only one of clipvalue, clipnorm and global_clipnorm may be set");
}

std::vector<Value> clip_gradients(const std::vector<Value>& gradients,
                                  const GradientOptions& options) {
  Value global_factor;
  if (options.global_clipnorm > 0 && !gradients.empty()) {
    Value sum = squared_norm(gradients[0]);
    for (size_t i = 1; i < gradients.size(); ++i) sum = sum + squared_norm(gradients[i]);
    global_factor = shrinking(sum, options.global_clipnorm);
  }
  std::vector<Value> clipped;
  for (const Value& g : gradients) {
    if (options.clipvalue > 0)
      clipped.push_back(ops::clip(g, -options.clipvalue, options.clipvalue));
    else if (options.clipnorm > 0)
      clipped.push_back(scaled(g, shrinking(squared_norm(g), options.clipnorm)));
    else
      clipped.push_back(global_factor ? scaled(g, global_factor) : g);
  }
  return clipped;
}

}  // namespace cohort::optim
