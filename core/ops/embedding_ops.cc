#include "core/ops/embedding_ops.h"

#include <limits>
#include <string_view>

#include "core/base/error.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

void check_lookup(std::string_view name, const Value& params, const Value& ids,
                  const Value& weights) {
  prepare(name, [&] {
    require_floating(params.spec(), "params");
    require_min_rank(params.spec(), 1, "params");
    require_integer(ids.spec(), "ids");
    require_min_rank(ids.spec(), 1, "ids");
    if (weights.defined()) require_spec(weights.spec(), {params.dtype(), ids.shape()}, "weights");
  });
}

void check_default(int64_t id, const Value& params, const Value& ids) {
  if (id < 0 || id >= params.shape()[0])
    invalid("the default id ", id, " is not a row of params, ", params.spec());
  if (ids.shape().dim(-1) == 0) invalid("ids ", ids.spec(), " have no room for a default id");
}

Value is_listed(const Value& ids) { return greater_equal(ids, scalar_like(ids, 0)); }

// What to divide by for 0 where x is 0; so are the gradients.
Value infinite_for_zero(const Value& x) {
  const double infinity = std::numeric_limits<double>::infinity();
  return where(equal(x, scalar_like(x, 0)), scalar_like(x, infinity), x);
}

// x with an axis of extent 1 for each axis of a row of `params`: what rows are multiplied with.
Value along_rows(const Value& x, const Value& params) {
  std::vector<int64_t> dims = x.shape().to_vector();
  dims.insert(dims.end(), static_cast<size_t>(params.shape().rank() - 1), 1);
  return reshape(x, dims);
}

// Of int64 ids; `weights` may be none.
Value combine(const Value& params, const Value& ids, const Value& weights, Combiner combiner) {
  const int64_t last = ids.shape().rank() - 1;
  const Value listed = is_listed(ids),
              counted = weights.defined() ? where(listed, weights, scalar_like(weights, 0))
                                          : cast(listed, params.dtype());
  Value rows = gather_rows_or_zero(params, ids);
  if (weights.defined()) rows = rows * along_rows(counted, params);
  const Value sum = reduce_sum(rows, {last});
  if (combiner == Combiner::kSum) return sum;
  // Before the root, which has no derivative at 0.
  const Value total = combiner == Combiner::kMean
                          ? infinite_for_zero(reduce_sum(counted, {last}))
                          : sqrt(infinite_for_zero(reduce_sum(square(counted), {last})));
  return sum / along_rows(total, params);
}

}  // namespace

Value embedding_lookup_sparse(const Value& params, const Value& ids, const Value& weights,
                              Combiner combiner) {
  check_lookup("embedding_lookup_sparse", params, ids, weights);
  return combine(params, cast(ids, DType::kInt64), weights, combiner);
}

Value safe_embedding_lookup_sparse(const Value& params, const Value& ids, const Value& weights,
                                   const SafeLookupOptions& options) {
  constexpr std::string_view kName = "safe_embedding_lookup_sparse";
  check_lookup(kName, params, ids, weights);
  Value kept = cast(ids, DType::kInt64), counted = weights;
  Value valid = is_listed(kept);
  if (weights.defined() && options.combiner != Combiner::kSum)
    valid = logical_and(valid, greater(weights, scalar_like(weights, 0)));
  kept = where(valid, kept, scalar_like(kept, -1));
  if (options.default_id) {
    const int64_t id = *options.default_id;
    prepare(kName, [&] { check_default(id, params, ids); });
    const Value empty = less(reduce_max(kept, {-1}, true), scalar_like(kept, 0));
    Tensor alone = Tensor::full(DType::kInt64, {ids.shape().dim(-1)}, -1);
    alone.data<int64_t>()[0] = id;
    kept = where(empty, constant(alone), kept);
    if (weights.defined()) counted = where(empty, cast(is_listed(kept), weights.dtype()), weights);
  }
  return combine(params, kept, counted, options.combiner);
}

}  // namespace cohort::ops
