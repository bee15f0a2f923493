#include "core/ops/op_helpers.h"
#include "core/ops/windows.h"

namespace cohort::ops {
namespace {

// The shape of x pooled. Every window holds at least one element of the image, because padding is
// narrower than a window.
Shape pooled_shape(const InferenceContext& c, const Shape& x) {
  const Windows windows{.size = size_attribute(c, "size"),
                        .strides = size_attribute(c, "strides"),
                        .pads = pads_attribute(c)};
  for (int i = 0; i < 4; ++i)
    if (windows.pads[i] >= windows.size[i / 2])
      invalid("padding of ", windows.pads[i], " is not narrower than the window of ",
              windows.size[i / 2]);
  if (x[1] == 0 || x[2] == 0) invalid("there is nothing to pool in ", x);
  const Size2 out = count_windows(windows, image_size(x));
  return Shape{x[0], out[0], out[1], x[3]};
}

void require_image(const TensorSpec& x, std::string_view what) {
  require_floating(x, what);
  require_rank(x, 4, what);
}

Specs infer_pool(const InferenceContext& c) {
  require_image(c.inputs[0], "x");
  return {{c.inputs[0].dtype, pooled_shape(c, c.inputs[0].shape)}};
}

Specs infer_max_pool_grad(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[1];
  require_image(x, "x");
  const TensorSpec y{x.dtype, pooled_shape(c, x.shape)};
  require_spec(c.inputs[0], y, "dy");
  require_spec(c.inputs[2], y, "y");
  return {x};
}

Specs infer_avg_pool_grad(const InferenceContext& c) {
  const TensorSpec& dy = c.inputs[0];
  require_image(dy, "dy");
  const Size2 image = size_attribute(c, "input_size");
  const Shape x{dy.shape[0], image[0], image[1], dy.shape[3]};
  require_spec(dy, {dy.dtype, pooled_shape(c, x)}, "dy");
  return {{dy.dtype, x}};
}

Values max_pool_gradient(const Node& node, const Values& dys) {
  return {apply("MaxPool2DGrad", {dys[0], node.inputs()[0], output_of(node)}, node.attributes())};
}

Values avg_pool_gradient(const Node& node, const Values& dys) {
  const Shape& x = node.inputs()[0].shape();
  Attributes attributes = node.attributes();
  attributes.set("input_size", std::vector<int64_t>{x[1], x[2]});
  return {apply("AvgPool2DGrad", {dys[0]}, std::move(attributes))};
}

Values avg_pool_grad_gradient(const Node& node, const Values& dys) {
  Attributes attributes;
  for (const char* name : {"size", "strides", "pads"})
    attributes.set(name, node.attributes().get<std::vector<int64_t>>(name));
  return {apply("AvgPool2D", {dys[0]}, std::move(attributes))};
}

COHORT_REGISTER_OP({.name = "MaxPool2D",
                    .num_inputs = 1,
                    .attributes = {"size", "strides", "pads"},
                    .infer = infer_pool,
                    .gradient = max_pool_gradient});
COHORT_REGISTER_OP({.name = "AvgPool2D",
                    .num_inputs = 1,
                    .attributes = {"size", "strides", "pads"},
                    .infer = infer_pool,
                    .gradient = avg_pool_gradient});
COHORT_REGISTER_OP({.name = "MaxPool2DGrad",
                    .num_inputs = 3,
                    .attributes = {"size", "strides", "pads"},
                    .infer = infer_max_pool_grad});
COHORT_REGISTER_OP({.name = "AvgPool2DGrad",
                    .num_inputs = 1,
                    .attributes = {"size", "strides", "pads", "input_size"},
                    .infer = infer_avg_pool_grad,
                    .gradient = avg_pool_grad_gradient});

Attributes pool_attributes(const Pool2DOptions& options, const TensorSpec& x) {
  require_image(x, "x");
  const auto stride = [](int64_t stride, int64_t size) { return stride == 0 ? size : stride; };
  const Windows windows{.size = {options.size.first, options.size.second},
                        .strides = {stride(options.strides.first, options.size.first),
                                    stride(options.strides.second, options.size.second)}};
  using List = std::vector<int64_t>;
  return {{"size", List{windows.size[0], windows.size[1]}},
          {"strides", List{windows.strides[0], windows.strides[1]}},
          {"pads", resolve_padding(options.padding, windows, image_size(x.shape))}};
}

Value pool(std::string_view op, const Value& x, const Pool2DOptions& options) {
  return apply(op, {x}, prepare(op, [&] { return pool_attributes(options, x.spec()); }));
}

}  // namespace

Value max_pool2d(const Value& x, const Pool2DOptions& options) {
  return pool("MaxPool2D", x, options);
}
Value avg_pool2d(const Value& x, const Pool2DOptions& options) {
  return pool("AvgPool2D", x, options);
}

}  // namespace cohort::ops
