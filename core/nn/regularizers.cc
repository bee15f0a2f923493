#include "core/nn/regularizers.h"

#include <cmath>

#include "core/base/error.h"
#include "core/ops/math_ops.h"

namespace cohort::regularizers {
namespace {

void check_factor(const char* regularizer, double factor) {
  if (!(factor >= 0 && std::isfinite(factor)))
    invalid(regularizer, ": the factor must be finite and not negative, got ", factor);
}

}  // namespace

Regularizer l1(double factor) {
  check_factor("l1", factor);
  return [factor](const Value& w) { return ops::reduce_sum(ops::abs(w)) * factor; };
}

Regularizer l2(double factor) {
  check_factor("l2", factor);
  return [factor](const Value& w) { return ops::reduce_sum(ops::square(w)) * factor; };
}

Regularizer l1_l2(double l1_factor, double l2_factor) {
  return [first = l1(l1_factor), second = l2(l2_factor)](const Value& w) {
    return first(w) + second(w);
  };
}

}  // namespace cohort::regularizers
