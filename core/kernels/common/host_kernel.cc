#include "core/kernels/common/host_kernel.h"

namespace cohort {
namespace {

class HostKernel final : public Kernel {
 public:
  HostKernel(const KernelSpec& spec, bool updates_outputs) : updates_outputs_(updates_outputs) {
    KernelSpec on_cpu = spec;
    on_cpu.device = Device{};
    kernel_ = make_kernel(on_cpu);
    scratch_ = allocate_host_buffer(kernel_->scratch_bytes());
    DeviceBackend& backend = device_backend(spec.device.type);
    const auto stage = [&](const std::vector<TensorSpec>& specs, Staged& staged) {
      for (const TensorSpec& tensor : specs)
        staged.push_back(backend.allocate_staging(spec.device, tensor.bytes()));
    };
    stage(spec.inputs, inputs_);
    stage(spec.outputs, outputs_);
    for (const auto& buffer : inputs_) sources_.push_back(buffer->data);
    for (const auto& buffer : outputs_) targets_.push_back(buffer->data);
  }

  void run(const KernelContext& context) override {
    Stream& stream = *context.stream;
    for (size_t i = 0; i < inputs_.size(); ++i)
      stream.copy_to_host(context.inputs[i], inputs_[i]->data, inputs_[i]->bytes);
    for (size_t i = 0; updates_outputs_ && i < outputs_.size(); ++i)
      stream.copy_to_host(context.outputs[i], outputs_[i]->data, outputs_[i]->bytes);
    stream.synchronize();
    kernel_->run({sources_, targets_, scratch_->data, context.step});
    for (size_t i = 0; i < outputs_.size(); ++i)
      stream.copy_from_host(outputs_[i]->data, context.outputs[i], outputs_[i]->bytes);
  }

  bool can_record() const override { return false; }
  // Outputs come back when all inputs have been taken.
  bool can_run_in_place(int output, int input) const override {
    return kernel_->can_run_in_place(output, input);
  }

 private:
  using Staged = std::vector<std::shared_ptr<Buffer>>;

  const bool updates_outputs_;
  std::unique_ptr<Kernel> kernel_;
  std::shared_ptr<Buffer> scratch_;
  Staged inputs_, outputs_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace

std::unique_ptr<Kernel> make_host_kernel(const KernelSpec& spec, bool updates_outputs) {
  return std::make_unique<HostKernel>(spec, updates_outputs);
}

}  // namespace cohort
