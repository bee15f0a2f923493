#include <algorithm>
#include <cmath>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

// Checks q, k and v, which start at input `first`, and the attributes; returns the specs of out and
// lse.
Specs attention_specs(const InferenceContext& c, int first) {
  const TensorSpec &q = c.inputs[first], &k = c.inputs[first + 1], &v = c.inputs[first + 2];
  require_floating(q, "q");
  require_rank(q, 4, "q");
  require_rank(k, 4, "k");
  require_spec(v, k, "v");
  const int64_t queries = q.shape[1], keys = k.shape[1];
  require_spec(k, {q.dtype, q.shape.with_dim(1, keys)}, "k");
  if (keys == 0) invalid("there are no keys to attend to");
  const bool causal = c.attributes.get<bool>("causal");
  if (causal && keys < queries)
    invalid("causal attention needs a key for each query: ", queries, " queries, ", keys, " keys");
  finite_attribute(c, "scale");
  return {q, {statistics_dtype(q.dtype), Shape{q.shape[0], q.shape[2], queries}}};
}

Specs infer_attention(const InferenceContext& c) { return attention_specs(c, 0); }

Specs infer_attention_grad(const InferenceContext& c) {
  const Specs forward = attention_specs(c, 1);
  require_spec(c.inputs[0], forward[0], "dout");
  require_spec(c.inputs[4], forward[0], "out");
  require_spec(c.inputs[5], forward[1], "lse");
  return {c.inputs[1], c.inputs[2], c.inputs[3]};
}

Values attention_gradient(const Node& node, const Values& dys) {
  if (!dys[0].defined()) return no_gradient(node, dys);
  const auto& in = node.inputs();
  return outputs_of(apply_node(
      "AttentionGrad", {dys[0], in[0], in[1], in[2], output_of(node, 0), output_of(node, 1)},
      node.attributes()));
}

COHORT_REGISTER_OP({.name = "Attention",
                    .num_inputs = 3,
                    .attributes = {"causal", "scale"},
                    .infer = infer_attention,
                    .gradient = attention_gradient});
COHORT_REGISTER_OP({.name = "AttentionGrad",
                    .num_inputs = 6,
                    .attributes = {"causal", "scale"},
                    .infer = infer_attention_grad});

// Whether query i sees key j.
Value causal_mask(int64_t queries, int64_t keys) {
  Tensor mask(DType::kBool, {queries, keys});
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j) mask.data<bool>()[i * keys + j] = j <= i + keys - queries;
  return constant(mask);
}

bool broadcasts_to(const Shape& wanted, const Shape& shape) {
  if (shape.rank() > wanted.rank()) return false;
  for (int i = 1; i <= shape.rank(); ++i)
    if (shape.dim(-i) != 1 && shape.dim(-i) != wanted.dim(-i)) return false;
  return true;
}

void check_mask(const Value& mask, const Shape& scores) {
  if (mask.dtype() != DType::kBool) invalid("the mask must be bool, is ", mask.spec());
  if (!broadcasts_to(scores, mask.shape()))
    invalid("a mask of shape ", mask.shape(),
            " does not broadcast to [batch, heads, queries, keys], ", scores);
}

// Of q, k and v that fit each other. Scores that are hidden are the lowest finite number, which
// leaves a softmax over nothing else a number, and have no weight.
Value masked_attention(const Value& q, const Value& k, const Value& v,
                       const AttentionOptions& options, double scale) {
  const int64_t queries = q.shape()[1], keys = k.shape()[1];
  check_mask(options.mask, {q.shape()[0], q.shape()[2], queries, keys});
  const GraphScope scope(q.graph());
  const Value seen =
      options.causal ? logical_and(options.mask, causal_mask(queries, keys)) : options.mask;
  const auto by_head = [](const Value& x) { return transpose(x, {0, 2, 1, 3}); };
  const Value scores = matmul(by_head(q * scale), by_head(k), {.transpose_b = true});
  const double lowest = scores.dtype() == DType::kFloat16 ? -65504 : -3e38;
  const Value weights = softmax(where(seen, scores, scalar_like(scores, lowest)));
  return by_head(matmul(where(seen, weights, scalar_like(weights, 0)), by_head(v)));
}

}  // namespace

Value scaled_dot_product_attention(const Value& q, const Value& k, const Value& v,
                                   const AttentionOptions& options) {
  require_rank(q.spec(), 4, "scaled_dot_product_attention: q");
  const double size = static_cast<double>(std::max<int64_t>(q.shape()[3], 1));
  const double scale = options.scale == 0 ? 1 / std::sqrt(size) : options.scale;
  const Attributes attributes{{"causal", options.causal}, {"scale", scale}};
  if (!options.mask.defined()) return apply("Attention", {q, k, v}, attributes);
  return prepare("scaled_dot_product_attention", [&] {
    const Specs inputs = {q.spec(), k.spec(), v.spec()};
    attention_specs({"Attention", inputs, attributes}, 0);
    return masked_attention(q, k, v, options, scale);
  });
}

}  // namespace cohort::ops
