#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

void require_normalised(const TensorSpec& x, std::string_view what) {
  require_floating(x, what);
  require_min_rank(x, 1, what);
}

// A parameter for each channel (the last axis of x), of x's dtype or of that of its statistics.
void require_parameter(const TensorSpec& parameter, const TensorSpec& x, std::string_view what) {
  const Shape channels{x.shape.dim(-1)};
  if (parameter.shape != channels)
    invalid(what, " must have shape ", channels, " (the last axis of x), has ", parameter.shape);
  if (parameter.dtype != x.dtype && parameter.dtype != statistics_dtype(x.dtype))
    invalid(what, " must be ", x.dtype, " or ", statistics_dtype(x.dtype), ", is ",
            parameter.dtype);
}

void require_gamma_and_beta(const InferenceContext& c) {
  require_parameter(c.inputs[1], c.inputs[0], "gamma");
  require_spec(c.inputs[2], c.inputs[1], "beta");
}

void require_epsilon(const InferenceContext& c) {
  if (finite_attribute(c, "epsilon") < 0) invalid("epsilon must not be negative");
}

// The activation of BatchNorm: whether it is ReLU.
bool fused_relu(const InferenceContext& c) {
  const auto& name = c.attributes.get<std::string>("activation");
  if (!name.empty() && name != "Relu")
    invalid("the activation must be \"\" or \"Relu\", is \"", name, '"');
  return !name.empty();
}

TensorSpec channel_statistics(const TensorSpec& x) {
  return {statistics_dtype(x.dtype), Shape{x.shape.dim(-1)}};
}

TensorSpec row_statistics(const TensorSpec& x) {
  return {statistics_dtype(x.dtype), x.shape.without_axis(x.shape.rank() - 1)};
}

Specs infer_batch_norm(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  require_normalised(x, "x");
  require_gamma_and_beta(c);
  require_epsilon(c);
  fused_relu(c);
  return {x, channel_statistics(x), channel_statistics(x)};
}

Specs infer_batch_norm_grad(const InferenceContext& c) {
  const size_t count = fused_relu(c) ? 6 : 5;
  if (c.inputs.size() != count)
    invalid("takes ", count, " inputs with this activation, got ", c.inputs.size());
  const TensorSpec &x = c.inputs[1], &gamma = c.inputs[2];
  require_normalised(x, "x");
  require_epsilon(c);
  require_spec(c.inputs[0], x, "dy");
  require_parameter(gamma, x, "gamma");
  require_spec(c.inputs[3], channel_statistics(x), "mean");
  require_spec(c.inputs[4], channel_statistics(x), "variance");
  if (count == 6) require_spec(c.inputs[5], x, "y");
  return {x, gamma, gamma};
}

Specs infer_layer_norm(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  require_normalised(x, "x");
  require_gamma_and_beta(c);
  require_epsilon(c);
  return {x, row_statistics(x), row_statistics(x)};
}

Specs infer_layer_norm_grad(const InferenceContext& c) {
  const TensorSpec &x = c.inputs[1], &gamma = c.inputs[2];
  require_normalised(x, "x");
  require_spec(c.inputs[0], x, "dy");
  require_parameter(gamma, x, "gamma");
  require_spec(c.inputs[3], row_statistics(x), "mean");
  require_spec(c.inputs[4], row_statistics(x), "rstd");
  return {x, gamma, gamma};
}

Specs infer_rms_norm(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  require_normalised(x, "x");
  require_parameter(c.inputs[1], x, "gamma");
  require_epsilon(c);
  return {x, row_statistics(x)};
}

Specs infer_rms_norm_grad(const InferenceContext& c) {
  const TensorSpec &x = c.inputs[1], &gamma = c.inputs[2];
  require_normalised(x, "x");
  require_spec(c.inputs[0], x, "dy");
  require_parameter(gamma, x, "gamma");
  require_spec(c.inputs[3], row_statistics(x), "rstd");
  return {x, gamma};
}

// Runs `op` on the gradient of output 0 (nobody sees the others of LayerNorm and RmsNorm), x, gamma
// and the statistics; its outputs are the gradients of the node's inputs.
Values norm_gradient(const char* op, const Node& node, const Values& dys, Attributes attributes) {
  if (!dys[0].defined()) return no_gradient(node, dys);
  Values inputs = {dys[0], node.inputs()[0], node.inputs()[1]};
  for (size_t i = 1; i < node.outputs().size(); ++i)
    inputs.push_back(output_of(node, static_cast<int>(i)));
  if (attributes.has("activation") && !attributes.get<std::string>("activation").empty())
    inputs.push_back(output_of(node));
  return outputs_of(apply_node(op, std::move(inputs), std::move(attributes)));
}

// The results of an op, composed of others.
using Composition = Values (*)(const Values& inputs);

// The gradient of an op as that of its composition, of copies of the inputs: what one input is
// computed from another by does not count here.
template <Composition compose>
Values composed_gradient(const Node& node, const Values& dys) {
  Values inputs, ys, grad_ys;
  for (const Value& input : node.inputs()) inputs.push_back(identity(input));
  const Values results = compose(inputs);
  for (size_t i = 0; i < dys.size(); ++i) {
    if (!dys[i].defined()) continue;
    ys.push_back(results[i]);
    grad_ys.push_back(dys[i]);
  }
  Values dxs;
  for (const Gradient& dx : gradients(ys, inputs, grad_ys)) dxs.push_back(dx.dense());
  return dxs;
}

// 1 / sqrt(variance + epsilon) for each row, with `rstd` as its value and the derivative that it
// has as a function of the variance.
Value rstd_of(const Value& variance, const Value& rstd) {
  const Value kept = reshape(rstd, variance.shape().to_vector());
  return rsqrt(variance + stop_gradient(reciprocal(square(kept)) - variance));
}

// dx, dgamma and, if `centred`, dbeta of rows that are normalised to
// (x - centre) * rstd * gamma + beta. The statistics that the node was given are functions of x
// here, so that none of them gets a gradient of its own.
Values row_norm_grads(const Values& inputs, const Value& rstd, bool centred) {
  const DType wide = rstd.dtype();
  const Value dy = cast(inputs[0], wide), x = cast(inputs[1], wide), gamma = cast(inputs[2], wide);
  const auto mean = [](const Value& v) { return reduce_mean(v, {-1}, true); };
  const Value deviations = centred ? x - mean(x) : x;
  const Value scale = rstd_of(mean(square(deviations)), rstd), y = deviations * scale,
              g = dy * gamma;
  const Value along = g - y * mean(g * y), dx = scale * (centred ? along - mean(g) : along);
  const auto as_parameter = [&](const Value& v) {
    return cast(sum_to_shape(v, gamma.shape()), inputs[2].dtype());
  };
  Values results = {cast(dx, inputs[1].dtype()), as_parameter(dy * y)};
  if (centred) results.push_back(as_parameter(dy));
  return results;
}

Values layer_norm_grads(const Values& inputs) { return row_norm_grads(inputs, inputs[4], true); }

Values rms_norm_grads(const Values& inputs) { return row_norm_grads(inputs, inputs[3], false); }

// What the gradients of the batch's mean and variance, where there are any, add to that of x.
Value statistics_gradient(const Node& node, const Values& dys) {
  const Value& x = node.inputs()[0];
  const Value mean = output_of(node, 1);
  const double rows = static_cast<double>(x.shape().num_elements()) /
                      static_cast<double>(mean.shape().num_elements());
  Value dx;
  if (dys[1].defined()) dx = broadcast_to(dys[1] / rows, x.shape());
  if (dys[2].defined()) {
    const Value of_variance = (cast(x, mean.dtype()) - mean) * (dys[2] * (2 / rows));
    dx = dx.defined() ? dx + of_variance : of_variance;
  }
  return dx.defined() ? cast(dx, x.dtype()) : Value();
}

Values batch_norm_gradient(const Node& node, const Values& dys) {
  Values dxs = norm_gradient("BatchNormGrad", node, dys, node.attributes());
  if (const Value more = statistics_gradient(node, dys); more.defined())
    dxs[0] = dxs[0].defined() ? dxs[0] + more : more;
  return dxs;
}

COHORT_REGISTER_OP({.name = "BatchNorm",
                    .num_inputs = 3,
                    .attributes = {"epsilon", "activation"},
                    .infer = infer_batch_norm,
                    .gradient = batch_norm_gradient});
COHORT_REGISTER_OP({.name = "LayerNorm",
                    .num_inputs = 3,
                    .attributes = {"epsilon"},
                    .infer = infer_layer_norm,
                    .gradient = [](const Node& node, const Values& dys) {
                      return norm_gradient("LayerNormGrad", node, dys, {});
                    }});
COHORT_REGISTER_OP({.name = "RmsNorm",
                    .num_inputs = 2,
                    .attributes = {"epsilon"},
                    .infer = infer_rms_norm,
                    .gradient = [](const Node& node, const Values& dys) {
                      return norm_gradient("RmsNormGrad", node, dys, {});
                    }});
COHORT_REGISTER_OP({.name = "BatchNormGrad",
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {"epsilon", "activation"},
                    .infer = infer_batch_norm_grad});
COHORT_REGISTER_OP({.name = "LayerNormGrad",
                    .num_inputs = 5,
                    .infer = infer_layer_norm_grad,
                    .gradient = composed_gradient<layer_norm_grads>});
COHORT_REGISTER_OP({.name = "RmsNormGrad",
                    .num_inputs = 4,
                    .infer = infer_rms_norm_grad,
                    .gradient = composed_gradient<rms_norm_grads>});

}  // namespace

BatchNorm batch_norm(const Value& x, const Value& gamma, const Value& beta, double epsilon) {
  Node& node = apply_node("BatchNorm", {x, gamma, beta},
                          {{"epsilon", epsilon}, {"activation", std::string()}});
  return {node.output(0), node.output(1), node.output(2)};
}

Value batch_norm_inference(const Value& x, const Value& gamma, const Value& beta, const Value& mean,
                           const Value& variance, double epsilon) {
  const Value scale = gamma * rsqrt(variance + epsilon);
  return x * cast(scale, x.dtype()) + cast(beta - mean * scale, x.dtype());
}

Value layer_norm(const Value& x, const Value& gamma, const Value& beta, double epsilon) {
  return apply("LayerNorm", {x, gamma, beta}, {{"epsilon", epsilon}});
}

Value rms_norm(const Value& x, const Value& gamma, double epsilon) {
  return apply("RmsNorm", {x, gamma}, {{"epsilon", epsilon}});
}

}  // namespace cohort::ops
