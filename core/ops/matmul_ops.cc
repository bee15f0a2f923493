#include <algorithm>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

// One b for all batches of a.
bool shares_b(const Shape& a, const Shape& b) { return b.rank() == 2 && a.rank() > 2; }

TensorSpec infer_product(const InferenceContext& c) {
  const TensorSpec &a = c.inputs[0], &b = c.inputs[1];
  require_floating(a, "a");
  require_same_dtype(a, "a", b, "b");
  require_min_rank(a, 2, "a");
  require_min_rank(b, 2, "b");
  const bool transpose_a = c.attributes.get<bool>("transpose_a"),
             transpose_b = c.attributes.get<bool>("transpose_b");
  const bool shared = shares_b(a.shape, b.shape);
  if (shared && transpose_a) invalid("a cannot be transposed while its batches share one b");
  if (!shared && (b.shape.rank() != a.shape.rank() ||
                  !std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin())))
    invalid("batches differ: a has shape ", a.shape, ", b has shape ", b.shape);
  const int64_t columns = a.shape.dim(transpose_a ? -2 : -1),
                rows = b.shape.dim(transpose_b ? -1 : -2);
  if (columns != rows)
    invalid("inner sizes differ: a has ", columns, " columns",
            transpose_a ? " once transposed" : "", ", b has ", rows, " rows",
            transpose_b ? " once transposed" : "");
  auto dims = a.shape.to_vector();
  dims.end()[-2] = a.shape.dim(transpose_a ? -1 : -2);
  dims.end()[-1] = b.shape.dim(transpose_b ? -2 : -1);
  return {product_dtype(c, a.dtype), Shape(dims)};
}

Specs infer_matmul(const InferenceContext& c) { return {infer_product(c)}; }

Specs infer_fused_matmul(const InferenceContext& c) {
  const TensorSpec product = infer_product(c);
  require_spec(c.inputs[2], {product.dtype, Shape{product.shape.dim(-1)}}, "bias");
  require_activation(c);
  return {product};
}

// A batched value as one tall matrix.
Value as_matrix(const Value& x) {
  const Shape& shape = x.shape();
  return reshape(x, {shape.count(0, shape.rank() - 1), shape.dim(-1)});
}

Values matmul_gradient(const Node& node, const Values& dys) {
  const Value &a = node.inputs()[0], &b = node.inputs()[1], &dy = dys[0];
  const bool ta = node.attributes().get<bool>("transpose_a"),
             tb = node.attributes().get<bool>("transpose_b");
  const Value da = ta ? matmul(b, dy, {tb, true}) : matmul(dy, b, {false, !tb});
  const bool shared = shares_b(a.shape(), b.shape());
  const Value rows = shared ? as_matrix(a) : a, drows = shared ? as_matrix(dy) : dy;
  const Value db = tb ? matmul(drows, rows, {true, ta}) : matmul(rows, drows, {!ta, false});
  return {da, db};
}

COHORT_REGISTER_OP({.name = "MatMul",
                    .num_inputs = 2,
                    .attributes = {"transpose_a", "transpose_b", "dtype"},
                    .infer = infer_matmul,
                    .gradient = matmul_gradient});
COHORT_REGISTER_OP({.name = "FusedMatMul",
                    .num_inputs = 3,
                    .attributes = {"transpose_a", "transpose_b", "dtype", "activation"},
                    .infer = infer_fused_matmul});

Value swap_last_axes(const Value& x) {
  std::vector<int64_t> perm;
  for (int i = 0; i < x.shape().rank(); ++i) perm.push_back(i);
  std::swap(perm.end()[-1], perm.end()[-2]);
  return transpose(x, perm);
}

Shape batches_of(const Shape& shape) { return Shape(shape.dims().first(shape.dims().size() - 2)); }

// The matrices of x for each of `batches`.
Value with_batches(const Value& x, const Shape& batches) {
  auto dims = batches.to_vector();
  dims.insert(dims.end(), x.shape().end() - 2, x.shape().end());
  return broadcast_to(x, Shape(dims));
}

// a and b with the batches that theirs broadcast to, unless all of a's share b.
Values with_equal_batches(const Value& a, const Value& b) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2 || shares_b(a.shape(), b.shape())) return {a, b};
  const Shape batches = prepare("matmul of batches", [&] {
    return broadcast_shapes(batches_of(a.shape()), batches_of(b.shape()));
  });
  return {with_batches(a, batches), with_batches(b, batches)};
}

}  // namespace

Value matmul(const Value& a, const Value& b, const MatMulOptions& options) {
  const bool transpose_first = options.transpose_a && shares_b(a.shape(), b.shape());
  return apply("MatMul", with_equal_batches(transpose_first ? swap_last_axes(a) : a, b),
               {{"transpose_a", options.transpose_a && !transpose_first},
                {"transpose_b", options.transpose_b}});
}

}  // namespace cohort::ops
