#include "core/ops/op_helpers.h"
#include "core/ops/windows.h"

namespace cohort::ops {
namespace {

Windows conv_windows(const InferenceContext& c, Size2 filter) {
  return {.size = filter,
          .strides = size_attribute(c, "strides"),
          .dilations = size_attribute(c, "dilations"),
          .pads = pads_attribute(c)};
}

int64_t groups_attribute(const InferenceContext& c) {
  const int64_t groups = c.attributes.get<int64_t>("groups");
  if (groups < 1) invalid("groups must be at least 1, is ", groups);
  return groups;
}

void require_operands(const TensorSpec& a, std::string_view what_a, const TensorSpec& b,
                      std::string_view what_b) {
  require_floating(a, what_a);
  require_same_dtype(a, what_a, b, what_b);
  require_rank(a, 4, what_a);
  require_rank(b, 4, what_b);
}

// The shape of x convolved with a filter, both of rank 4.
Shape conv_shape(const InferenceContext& c, const Shape& x, const Shape& filter) {
  const int64_t groups = groups_attribute(c);
  if (x[3] % groups != 0 || filter[3] % groups != 0)
    invalid(groups, " groups divide neither or one of ", x[3], " input and ", filter[3],
            " output channels");
  if (x[3] / groups != filter[2])
    invalid("x has ", x[3], " channels in ", groups, " groups, the filter takes ", filter[2],
            " a group");
  const Size2 out = count_windows(conv_windows(c, {filter[0], filter[1]}), image_size(x));
  return Shape{x[0], out[0], out[1], filter[3]};
}

TensorSpec infer_conv(const InferenceContext& c) {
  require_operands(c.inputs[0], "x", c.inputs[1], "the filter");
  return {product_dtype(c, c.inputs[0].dtype), conv_shape(c, c.inputs[0].shape, c.inputs[1].shape)};
}

Specs infer_conv2d(const InferenceContext& c) { return {infer_conv(c)}; }

Specs infer_fused_conv2d(const InferenceContext& c) {
  const TensorSpec y = infer_conv(c);
  require_spec(c.inputs[2], {y.dtype, Shape{y.shape[3]}}, "bias");
  require_activation(c);
  return {y};
}

// `dy` must be what the convolution of x and filter gives.
void require_conv_output(const InferenceContext& c, const Shape& x, const Shape& filter,
                         const Shape& dy) {
  const Shape y = conv_shape(c, x, filter);
  if (dy != y) invalid("the convolution of ", x, " and ", filter, " has shape ", y, ", not ", dy);
}

Specs infer_grad_input(const InferenceContext& c) {
  const TensorSpec &dy = c.inputs[0], &filter = c.inputs[1];
  require_operands(dy, "dy", filter, "the filter");
  const Size2 image = size_attribute(c, "input_size", 0);
  int64_t channels;
  if (__builtin_mul_overflow(filter.shape[2], groups_attribute(c), &channels))
    invalid("too many groups");
  const Shape x{dy.shape[0], image[0], image[1], channels};
  require_conv_output(c, x, filter.shape, dy.shape);
  return {{product_dtype(c, dy.dtype), x}};
}

Specs infer_grad_filter(const InferenceContext& c) {
  const TensorSpec &x = c.inputs[0], &dy = c.inputs[1];
  require_operands(x, "x", dy, "dy");
  const Size2 size = size_attribute(c, "filter_size");
  const Shape filter{size[0], size[1], x.shape[3] / groups_attribute(c), dy.shape[3]};
  require_conv_output(c, x.shape, filter, dy.shape);
  return {{product_dtype(c, x.dtype), filter}};
}

// The attributes that the three convolutions share.
Attributes shared_attributes(const Node& node) {
  Attributes attributes;
  for (const char* name : {"strides", "dilations", "pads"})
    attributes.set(name, node.attributes().get<std::vector<int64_t>>(name));
  attributes.set("groups", node.attributes().get<int64_t>("groups"));
  return attributes;
}

Value conv(const Node& node, const Value& x, const Value& filter) {
  return apply("Conv2D", {x, filter}, shared_attributes(node));
}

Value grad_input(const Node& node, const Value& dy, const Value& filter, const Shape& x) {
  Attributes attributes = shared_attributes(node);
  attributes.set("input_size", std::vector<int64_t>{x[1], x[2]});
  return apply("Conv2DGradInput", {dy, filter}, std::move(attributes));
}

Value grad_filter(const Node& node, const Value& x, const Value& dy, const Shape& filter) {
  Attributes attributes = shared_attributes(node);
  attributes.set("filter_size", std::vector<int64_t>{filter[0], filter[1]});
  return apply("Conv2DGradFilter", {x, dy}, std::move(attributes));
}

// A convolution is linear in x and in the filter, so the three ops are each other's gradients.
Values conv_gradient(const Node& node, const Values& dys) {
  const Value &x = node.inputs()[0], &filter = node.inputs()[1];
  return {grad_input(node, dys[0], filter, x.shape()),
          grad_filter(node, x, dys[0], filter.shape())};
}

Values grad_input_gradient(const Node& node, const Values& dys) {
  const Value &dy = node.inputs()[0], &filter = node.inputs()[1];
  return {conv(node, dys[0], filter), grad_filter(node, dys[0], dy, filter.shape())};
}

Values grad_filter_gradient(const Node& node, const Values& dys) {
  const Value &x = node.inputs()[0], &dy = node.inputs()[1];
  return {grad_input(node, dy, dys[0], x.shape()), conv(node, x, dys[0])};
}

COHORT_REGISTER_OP({.name = "Conv2D",
                    .num_inputs = 2,
                    .attributes = {"strides", "dilations", "pads", "groups", "dtype"},
                    .infer = infer_conv2d,
                    .gradient = conv_gradient});
COHORT_REGISTER_OP({.name = "FusedConv2D",
                    .num_inputs = 3,
                    .attributes = {"strides", "dilations", "pads", "groups", "dtype", "activation"},
                    .infer = infer_fused_conv2d});
COHORT_REGISTER_OP({.name = "Conv2DGradInput",
                    .num_inputs = 2,
                    .attributes = {"strides", "dilations", "pads", "groups", "dtype", "input_size"},
                    .infer = infer_grad_input,
                    .gradient = grad_input_gradient});
COHORT_REGISTER_OP({.name = "Conv2DGradFilter",
                    .num_inputs = 2,
                    .attributes = {"strides", "dilations", "pads", "groups", "dtype",
                                   "filter_size"},
                    .infer = infer_grad_filter,
                    .gradient = grad_filter_gradient});

Attributes conv_attributes(const Conv2DOptions& options, const Shape& filter, Size2 image) {
  const Windows windows{.size = {filter[0], filter[1]},
                        .strides = {options.strides.first, options.strides.second},
                        .dilations = {options.dilations.first, options.dilations.second}};
  using List = std::vector<int64_t>;
  return {{"strides", List{windows.strides[0], windows.strides[1]}},
          {"dilations", List{windows.dilations[0], windows.dilations[1]}},
          {"pads", resolve_padding(options.padding, windows, image)},
          {"groups", options.groups}};
}

}  // namespace

Value conv2d(const Value& x, const Value& filter, const Conv2DOptions& options) {
  Attributes attributes = prepare("conv2d", [&] {
    require_operands(x.spec(), "x", filter.spec(), "the filter");
    return conv_attributes(options, filter.shape(), image_size(x.shape()));
  });
  return apply("Conv2D", {x, filter}, std::move(attributes));
}

Value conv2d_transpose(const Value& y, const Value& filter, std::pair<int64_t, int64_t> output_size,
                       const Conv2DOptions& options) {
  const Size2 image = {output_size.first, output_size.second};
  Attributes attributes = prepare("conv2d_transpose", [&] {
    require_operands(y.spec(), "y", filter.spec(), "the filter");
    return conv_attributes(options, filter.shape(), image);
  });
  attributes.set("input_size", std::vector<int64_t>{image[0], image[1]});
  return apply("Conv2DGradInput", {y, filter}, std::move(attributes));
}

}  // namespace cohort::ops
