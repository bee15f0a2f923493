#include "core/kernels/common/widened_kernel.h"

#include <algorithm>

#include "core/kernels/common/scratch.h"

namespace cohort {
namespace {

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const KernelSpec& spec, const KernelFactory& factory,
                const HalfConversion& conversion)
      : conversion_(conversion),
        inputs_(spec.inputs),
        outputs_(spec.outputs),
        input_pointers_(inputs_.size()),
        output_pointers_(outputs_.size()) {
    KernelSpec wide = spec;
    for (auto& tensor : wide.inputs) input_offsets_.push_back(widen_spec(tensor));
    for (auto& tensor : wide.outputs) output_offsets_.push_back(widen_spec(tensor));
    inner_ = factory(wide);
    inner_offset_ = layout_.add(inner_->scratch_bytes());
  }

  void run(const KernelContext& context) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      input_pointers_[i] = context.inputs[i];
      if (!is_half(inputs_[i].dtype)) continue;
      void* copy = scratch_at<void>(context, input_offsets_[i]);
      conversion_.widen(context, inputs_[i], context.inputs[i], copy);
      input_pointers_[i] = copy;
    }
    for (size_t i = 0; i < outputs_.size(); ++i)
      output_pointers_[i] = is_half(outputs_[i].dtype)
                                ? scratch_at<void>(context, output_offsets_[i])
                                : context.outputs[i];
    KernelContext inner = context;
    inner.inputs = input_pointers_;
    inner.outputs = output_pointers_;
    inner.scratch = scratch_at<void>(context, inner_offset_);
    inner_->run(inner);
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (is_half(outputs_[i].dtype))
        conversion_.narrow(context, outputs_[i], output_pointers_[i], context.outputs[i]);
  }

  size_t scratch_bytes() const override { return layout_.bytes(); }

  Error describe(const KernelFault& fault) const override { return inner_->describe(fault); }

  // A 16-bit input has been copied before anything is written, a 16-bit output is written after all
  // is read.
  bool can_run_in_place(int output, int input) const override {
    return is_half(outputs_[output].dtype) || is_half(inputs_[input].dtype) ||
           inner_->can_run_in_place(output, input);
  }

 private:
  // Makes a 16-bit tensor float32; returns the place of its copy.
  size_t widen_spec(TensorSpec& tensor) {
    if (!is_half(tensor.dtype)) return 0;
    tensor.dtype = DType::kFloat32;
    return layout_.add(tensor.bytes());
  }

  const HalfConversion conversion_;
  std::vector<TensorSpec> inputs_, outputs_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
  std::vector<size_t> input_offsets_, output_offsets_;
  ScratchLayout layout_;
  std::unique_ptr<Kernel> inner_;
  size_t inner_offset_ = 0;
};

}  // namespace

bool has_16_bit(const KernelSpec& spec) {
  const auto is_narrow = [](const TensorSpec& tensor) { return is_half(tensor.dtype); };
  return std::any_of(spec.inputs.begin(), spec.inputs.end(), is_narrow) ||
         std::any_of(spec.outputs.begin(), spec.outputs.end(), is_narrow);
}

std::unique_ptr<Kernel> make_widened(const KernelSpec& spec, const KernelFactory& factory,
                                     const HalfConversion& conversion) {
  return std::make_unique<WidenedKernel>(spec, factory, conversion);
}

}  // namespace cohort
