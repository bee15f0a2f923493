#include "core/kernels/cpu/conv_direct.h"
#include "core/kernels/cpu/dnnl_sequence.h"

// Conv2D, FusedConv2D and their gradients through oneDNN. Activations stay NHWC; the filter is
// small and is laid out anew in each step the way oneDNN likes it.
namespace cohort {
namespace {

using dnnl::memory;

// Everything oneDNN wants to know about a convolution.
struct ConvProblem {
  memory::desc x, y;
  memory::desc filter;      // as stored: HWIO
  memory::desc any_filter;  // as oneDNN likes it
  memory::dims strides, dilations, before, after;

  ConvProblem(const ConvSizes& s, DType x_type, DType filter_type, DType y_type)
      : x({s.batch, s.in_c, s.in_h, s.in_w}, dnnl_type(x_type), memory::format_tag::nhwc),
        y({s.batch, s.out_c, s.out_h, s.out_w}, dnnl_type(y_type), memory::format_tag::nhwc),
        strides{s.stride_h, s.stride_w},
        dilations{s.dilation_h - 1, s.dilation_w - 1},
        before{s.top, s.left},
        after{s.bottom, s.right} {
    const int64_t tap = s.group_in() * s.out_c;
    memory::dims dims = {s.group_out(), s.group_in(), s.kernel_h, s.kernel_w};
    memory::dims steps = {1, s.out_c, s.kernel_w * tap, tap};
    if (s.groups > 1) {
      dims.insert(dims.begin(), s.groups);
      steps.insert(steps.begin(), s.group_out());
    }
    filter = memory::desc(dims, dnnl_type(filter_type), steps);
    any_filter = memory::desc(dims, dnnl_type(filter_type), memory::format_tag::any);
  }

  // Of the forward pass.
  dnnl::convolution_forward::primitive_desc forward(const memory::desc& bias = {},
                                                    const std::string& activation = "") const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::desc desc(kind, algorithm, x, any_filter, bias, y, strides,
                                               dilations, before, after);
    return {desc, DnnlSequence::attributes(activation), dnnl_engine()};
  }
};

// What guides oneDNN's choice for a gradient: the forward pass in the dtype of the operands alone,
// since it has none that takes or gives what a gradient in float32 of 16-bit operands would.
dnnl::convolution_forward::primitive_desc hint(const ConvSizes& sizes, DType operands) {
  return ConvProblem(sizes, operands, operands, operands).forward();
}

std::unique_ptr<Kernel> make_dnnl_conv(const KernelSpec& spec) {
  const ConvProblem p(conv_sizes(spec), spec.inputs[0].dtype, spec.inputs[1].dtype,
                      spec.outputs[0].dtype);
  const bool fused = spec.inputs.size() == 3;
  const auto activation = spec.attributes.get_or<std::string>("activation", "");
  memory::desc bias;
  if (fused)
    bias = {{spec.inputs[2].shape[0]}, dnnl_type(spec.inputs[2].dtype), memory::format_tag::a};
  const auto desc = p.forward(bias, activation);

  auto kernel = std::make_unique<DnnlSequence>();
  const auto filter = kernel->reordered(DnnlSequence::input(1), p.filter, desc.weights_desc());
  std::vector<DnnlSequence::Argument> arguments = {{DNNL_ARG_SRC, p.x, DnnlSequence::input(0)},
                                                   {DNNL_ARG_WEIGHTS, desc.weights_desc(), filter},
                                                   {DNNL_ARG_DST, p.y, DnnlSequence::output(0)}};
  if (fused) arguments.push_back({DNNL_ARG_BIAS, bias, DnnlSequence::input(2)});
  kernel->add(dnnl::convolution_forward(desc), std::move(arguments));
  kernel->finish_with(activation, spec.outputs[0].shape.num_elements());
  return kernel;
}

std::unique_ptr<Kernel> make_dnnl_conv_grad_input(const KernelSpec& spec) {
  const ConvSizes sizes = conv_grad_input_sizes(spec);
  const ConvProblem p(sizes, spec.outputs[0].dtype, spec.inputs[1].dtype, spec.inputs[0].dtype);
  const dnnl::convolution_backward_data::primitive_desc desc(
      {dnnl::algorithm::convolution_direct, p.x, p.any_filter, p.y, p.strides, p.dilations,
       p.before, p.after},
      DnnlSequence::attributes(), dnnl_engine(), hint(sizes, spec.inputs[0].dtype));

  auto kernel = std::make_unique<DnnlSequence>();
  const auto filter = kernel->reordered(DnnlSequence::input(1), p.filter, desc.weights_desc());
  kernel->add(dnnl::convolution_backward_data(desc),
              {{DNNL_ARG_DIFF_DST, p.y, DnnlSequence::input(0)},
               {DNNL_ARG_WEIGHTS, desc.weights_desc(), filter},
               {DNNL_ARG_DIFF_SRC, p.x, DnnlSequence::output(0)}});
  return kernel;
}

std::unique_ptr<Kernel> make_dnnl_conv_grad_filter(const KernelSpec& spec) {
  const ConvSizes sizes = conv_grad_filter_sizes(spec);
  const ConvProblem p(sizes, spec.inputs[0].dtype, spec.outputs[0].dtype, spec.inputs[1].dtype);
  const dnnl::convolution_backward_weights::primitive_desc desc(
      {dnnl::algorithm::convolution_direct, p.x, p.any_filter, p.y, p.strides, p.dilations,
       p.before, p.after},
      DnnlSequence::attributes(), dnnl_engine(), hint(sizes, spec.inputs[0].dtype));

  auto kernel = std::make_unique<DnnlSequence>();
  const auto theirs = desc.diff_weights_desc();
  const bool same = theirs == p.filter;
  const auto target = same ? DnnlSequence::output(0) : kernel->scratch(theirs);
  kernel->add(dnnl::convolution_backward_weights(desc),
              {{DNNL_ARG_SRC, p.x, DnnlSequence::input(0)},
               {DNNL_ARG_DIFF_DST, p.y, DnnlSequence::input(1)},
               {DNNL_ARG_DIFF_WEIGHTS, theirs, target}});
  if (!same) kernel->add_reorder(target, theirs, DnnlSequence::output(0), p.filter);
  return kernel;
}

std::unique_ptr<Kernel> make_conv(const KernelSpec& spec) {
  return make_dnnl_or<DirectConv>(spec, make_dnnl_conv);
}

std::unique_ptr<Kernel> make_conv_grad_input(const KernelSpec& spec) {
  return make_dnnl_or<DirectConvGradInput>(spec, make_dnnl_conv_grad_input);
}

std::unique_ptr<Kernel> make_conv_grad_filter(const KernelSpec& spec) {
  return make_dnnl_or<DirectConvGradFilter>(spec, make_dnnl_conv_grad_filter);
}

COHORT_REGISTER_KERNEL("Conv2D", kCpu, make_conv);
COHORT_REGISTER_KERNEL("FusedConv2D", kCpu, make_conv);
COHORT_REGISTER_KERNEL("Conv2DGradInput", kCpu, make_conv_grad_input);
COHORT_REGISTER_KERNEL("Conv2DGradFilter", kCpu, make_conv_grad_filter);

}  // namespace

}  // namespace cohort
