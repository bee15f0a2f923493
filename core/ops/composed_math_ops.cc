#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

// Reductions that have no op of their own: they add others, whose kernels and gradients are theirs.
namespace cohort::ops {
namespace {

using Axes = std::vector<int64_t>;

// The extremes of no bytes are 0 and 255.
Value as_bytes(std::string_view name, const Value& x) {
  if (x.dtype() != DType::kBool) invalid(in_scope(name), ": x must be bool, not ", x.dtype());
  return cast(x, DType::kUInt8);
}

// Sums of 16-bit numbers are larger than such numbers.
Value widened(std::string_view name, const Value& x) {
  prepare(name, [&] { require_floating(x.spec(), "x"); });
  return cast(x, statistics_dtype(x.dtype()));
}

}  // namespace

Value reduce_any(const Value& x, const Axes& axes, bool keep_dims) {
  return cast(reduce_max(as_bytes("reduce_any", x), axes, keep_dims), DType::kBool);
}
Value reduce_all(const Value& x, const Axes& axes, bool keep_dims) {
  return cast(reduce_min(as_bytes("reduce_all", x), axes, keep_dims), DType::kBool);
}

Value reduce_logsumexp(const Value& x, const Axes& axes, bool keep_dims) {
  const Value wide = widened("reduce_logsumexp", x);
  const Value largest = reduce_max(wide, axes, true);
  const Value shift = stop_gradient(where(is_finite(largest), largest, scalar_like(wide, 0)));
  const Value sums = reduce_sum(exp(wide - shift), axes, keep_dims);
  return cast(log(sums) + reshape(shift, sums.shape().to_vector()), x.dtype());
}

Value reduce_variance(const Value& x, const Axes& axes, bool keep_dims) {
  const Value wide = widened("reduce_variance", x);
  const Value deviations = wide - reduce_mean(wide, axes, true);
  return cast(reduce_mean(square(deviations), axes, keep_dims), x.dtype());
}

Value reduce_std(const Value& x, const Axes& axes, bool keep_dims) {
  const Value wide = widened("reduce_std", x);
  return cast(sqrt(reduce_variance(wide, axes, keep_dims)), x.dtype());
}

// The largest of what is turned round. Of integers that is -1 - x, which all of them have.
Value argmin(const Value& x, int64_t axis) {
  axis_of("argmin", x, axis);
  if (!is_integer(x.dtype())) return argmax(neg(x), axis);
  const Value wide = cast(x, DType::kInt64);
  return argmax(scalar_like(wide, -1) - wide, axis);
}

}  // namespace cohort::ops
