#include "core/kernels/common/array_ops.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/cuda/box_copy.h"
#include "core/kernels/cuda/fill.h"

namespace cohort::cuda {
namespace {

class CopyKernel : public Kernel {
 public:
  CopyKernel(const KernelSpec& spec, const std::vector<TensorBox>& boxes)
      : boxes_(boxes), element_bytes_(dtype_size(spec.inputs[0].dtype)) {
    for (const TensorBox& b : boxes)
      places_.emplace_back(b.extents, b.source_strides, b.target_strides);
  }
  void run(const KernelContext& context) override {
    for (size_t i = 0; i < boxes_.size(); ++i)
      copy_box(*context.stream, places_[i],
               context.input<char>(boxes_[i].input) + boxes_[i].source_offset,
               context.output<char>(boxes_[i].output) + boxes_[i].target_offset, element_bytes_);
  }

 private:
  std::vector<TensorBox> boxes_;
  std::vector<Box> places_;
  size_t element_bytes_;
};

// Fills the output with the padding first: it is at most a few per cent of the elements in
// practice.
class FillKernel final : public CopyKernel {
 public:
  FillKernel(const KernelSpec& spec, const std::vector<TensorBox>& boxes)
      : CopyKernel(spec, boxes),
        output_(spec.outputs[0]),
        value_(spec.attributes.get<double>("value")) {}

  void run(const KernelContext& context) override {
    dispatch(AllTypes{}, output_.dtype, "Pad", [&]<typename T>() {
      fill(*context.stream, context.output<T>(0), output_.shape.num_elements(), convert<T>(value_));
    });
    CopyKernel::run(context);
  }

 private:
  TensorSpec output_;
  double value_;
};

// Copies its input, or does nothing where the plan gave both the same memory.
class IdentityKernel : public Kernel {
 public:
  explicit IdentityKernel(const KernelSpec& spec) : bytes_(spec.outputs[0].bytes()) {}
  void run(const KernelContext& context) override {
    context.stream->copy_within_device(context.inputs[0], context.outputs[0], bytes_);
  }
  bool can_run_in_place(int, int input) const override { return input == 0; }

 private:
  size_t bytes_;
};

class RequireKernel final : public IdentityKernel {
 public:
  explicit RequireKernel(const KernelSpec& spec)
      : IdentityKernel(spec), message_(spec.attributes.get<std::string>("message")) {}
  void run(const KernelContext& context) override {
    const bool* condition = context.input<bool>(1);
    KernelFault* fault = context.fault;
    const int32_t number = context.number;
    for_each_element(*context.stream, 1, [=] COHORT_DEVICE(int64_t) {
      if (!*condition) report(fault, number, 0, 0);
    });
    IdentityKernel::run(context);
  }
  Error describe(const KernelFault&) const override { return Error(Code::kOutOfRange, message_); }

 private:
  std::string message_;
};

const bool kRegistered = [] {
  register_array_ops(DeviceType::kGpu, {make_with_boxes<CopyKernel>, make_with_boxes<FillKernel>,
                                        make_plain<IdentityKernel>, make_plain<RequireKernel>});
  return true;
}();

}  // namespace
}  // namespace cohort::cuda
