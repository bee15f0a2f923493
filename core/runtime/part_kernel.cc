#include "core/runtime/part_kernel.h"

#include "core/base/part.h"

namespace cohort {
namespace {

class PartKernel final : public Kernel {
 public:
  explicit PartKernel(const KernelSpec& spec)
      : inputs_(spec.inputs.size()), outputs_(spec.outputs.size()) {
    const auto& part = spec.attributes.get<std::vector<int64_t>>("part");
    KernelSpec own = spec;
    for (TensorSpec& input : own.inputs) input_offsets_.push_back(cut(input, part));
    for (TensorSpec& output : own.outputs) output_offsets_.push_back(cut(output, part));
    kernel_ = make_kernel(own);
  }

  size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  bool can_run_in_place(int output, int input) const override {
    return kernel_->can_run_in_place(output, input);
  }

  void run(const KernelContext& context) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      inputs_[i] = static_cast<const char*>(context.inputs[i]) + input_offsets_[i];
    for (size_t i = 0; i < outputs_.size(); ++i)
      outputs_[i] = static_cast<char*>(context.outputs[i]) + output_offsets_[i];
    KernelContext part = context;
    part.inputs = inputs_;
    part.outputs = outputs_;
    kernel_->run(part);
  }

 private:
  // Makes of the spec that of its part, and returns where that begins, in bytes.
  static size_t cut(TensorSpec& spec, const std::vector<int64_t>& part) {
    const int64_t count = spec.shape.num_elements();
    if (count == 1) {
      spec.shape = {};
      return 0;
    }
    const Part own = part_of(count, part[0], part[1]);
    spec.shape = {own.size()};
    return static_cast<size_t>(own.begin) * dtype_size(spec.dtype);
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<size_t> input_offsets_, output_offsets_;  // in bytes
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace

std::unique_ptr<Kernel> make_part_kernel(const KernelSpec& spec) {
  return std::make_unique<PartKernel>(spec);
}

}  // namespace cohort
