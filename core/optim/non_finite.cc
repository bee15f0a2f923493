#include "core/optim/non_finite.h"

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/reduction.h"

namespace cohort::optim {
namespace {

std::vector<Gradient> with_zeros(const std::vector<Gradient>& gradients) {
  std::vector<Gradient> cleaned = gradients;
  for (const size_t i : ready_order(gradients)) {
    Value& values = cleaned[i].values;
    if (is_floating(values.dtype()))
      values = ops::where(ops::is_finite(values), values, ops::constant(0, values.dtype()));
  }
  return cleaned;
}

// All checks stand in front of the last gradient. Those before it are summed over the replicas
// behind the backward pass as ever, and nobody has all sums where a replica has failed.
std::vector<Gradient> require_finite(const std::vector<Gradient>& gradients,
                                     const std::vector<std::shared_ptr<Variable>>& variables) {
  std::vector<Gradient> checked = gradients;
  std::vector<size_t> order = ready_order(gradients);
  if (order.empty()) return checked;
  const size_t last = order.back();
  order.pop_back();
  const auto message = [&](size_t i) {
    return str("the gradient of variable \"", variables[i]->name(),
               "\" is not finite, which its optimizer takes for an error (non_finite = kError)");
  };
  Value holds = all_finite({gradients[last].values});
  for (const size_t i : order)
    holds = ops::require(holds, all_finite({gradients[i].values}), message(i));
  checked[last].values = ops::require(checked[last].values, holds, message(last));
  return checked;
}

}  // namespace

void check_non_finite(const GradientOptions& options) {
  const NonFinite policy = options.non_finite;
  if (policy == NonFinite::kSkip && options.power_sgd)
    invalid(
        "non_finite = kSkip and power_sgd cannot both be set: what the compression keeps back "
        "would not be finite; kError and kZero are allowed");
  if ((policy == NonFinite::kError || policy == NonFinite::kZero) &&
      options.reduce_as == DType::kFloat16)
    invalid(
        "non_finite = kError or kZero and reduce_as = float16 cannot both be set: each replica "
        "looks at its own gradient, and a sum in float16 may be infinite where none of them is; "
        "kSkip, which looks at sums, and bfloat16 are allowed");
}

Value all_finite(const std::vector<Value>& gradients) {
  Value total;
  for (const Value& gradient : gradients) {
    const Value wide = is_half(gradient.dtype()) ? ops::cast(gradient, DType::kFloat32) : gradient;
    const Value sum = ops::cast(ops::reduce_sum(wide), DType::kFloat64);
    total = total.defined() ? total + sum : sum;
  }
  return ops::is_finite(total);
}

std::vector<Gradient> treat_non_finite(NonFinite policy, const std::vector<Gradient>& gradients,
                                       const std::vector<std::shared_ptr<Variable>>& variables) {
  if (policy == NonFinite::kZero) return with_zeros(gradients);
  if (policy == NonFinite::kError) return require_finite(gradients, variables);
  return gradients;
}

}  // namespace cohort::optim
