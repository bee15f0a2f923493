#include "core/kernels/common/conv_sizes.h"

namespace cohort {

ConvSizes::ConvSizes(const Shape& x, const Shape& filter, const Shape& y,
                     const Attributes& attributes)
    : batch(x[0]),
      in_h(x[1]),
      in_w(x[2]),
      in_c(x[3]),
      out_h(y[1]),
      out_w(y[2]),
      out_c(y[3]),
      kernel_h(filter[0]),
      kernel_w(filter[1]),
      groups(attributes.get<int64_t>("groups")) {
  using List = std::vector<int64_t>;
  const List &strides = attributes.get<List>("strides"),
             &dilations = attributes.get<List>("dilations");
  const List& pads = attributes.get<List>("pads");
  stride_h = strides[0], stride_w = strides[1];
  dilation_h = dilations[0], dilation_w = dilations[1];
  top = pads[0], bottom = pads[1], left = pads[2], right = pads[3];
}

ConvSizes conv_sizes(const KernelSpec& spec) {
  return {spec.inputs[0].shape, spec.inputs[1].shape, spec.outputs[0].shape, spec.attributes};
}

ConvSizes conv_grad_input_sizes(const KernelSpec& spec) {
  return {spec.outputs[0].shape, spec.inputs[1].shape, spec.inputs[0].shape, spec.attributes};
}

ConvSizes conv_grad_filter_sizes(const KernelSpec& spec) {
  return {spec.inputs[0].shape, spec.outputs[0].shape, spec.inputs[1].shape, spec.attributes};
}

}  // namespace cohort
