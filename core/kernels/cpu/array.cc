#include <algorithm>

#include "core/base/threads.h"
#include "core/kernels/common/array_ops.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/cpu/strided_copy.h"

namespace cohort {
namespace {

constexpr int64_t kMinElementsPerThread = 16384;

class CopyKernel : public Kernel {
 public:
  CopyKernel(const KernelSpec& spec, const std::vector<TensorBox>& boxes) : boxes_(boxes) {
    for (const TensorBox& b : boxes)
      copies_.emplace_back(b.extents, b.source_strides, b.target_strides,
                           dtype_size(spec.inputs[0].dtype));
  }
  void run(const KernelContext& context) override {
    for (size_t i = 0; i < boxes_.size(); ++i)
      copies_[i].run(context.input<char>(boxes_[i].input) + boxes_[i].source_offset,
                     context.output<char>(boxes_[i].output) + boxes_[i].target_offset);
  }

 private:
  std::vector<TensorBox> boxes_;
  std::vector<StridedCopy> copies_;
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
      parallel_for(
          output_.shape.num_elements(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
            std::fill(context.output<T>(0) + begin, context.output<T>(0) + end, convert<T>(value_));
          });
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
    parallel_copy(context.inputs[0], context.outputs[0], bytes_);
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
    if (!*context.input<bool>(1)) throw Error(Code::kOutOfRange, message_);
    IdentityKernel::run(context);
  }

 private:
  std::string message_;
};

const bool kRegistered = [] {
  register_array_ops(DeviceType::kCpu, {make_with_boxes<CopyKernel>, make_with_boxes<FillKernel>,
                                        make_plain<IdentityKernel>, make_plain<RequireKernel>});
  return true;
}();

}  // namespace
}  // namespace cohort
