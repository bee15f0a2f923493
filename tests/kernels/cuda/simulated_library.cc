#include <utility>

#include "core/device/simulated/simulated_gpus.h"
#include "core/kernels/common/elementwise_spec.h"
#include "tests/kernels/cuda/workspace.h"

// What libraries and run-time compilation do on a GPU, the CPU's kernels do on a simulated one, as
// work of its stream. When a kernel is made, and when it first runs, they wait for all streams.
namespace cohort {
namespace {

class LibraryKernel final : public Kernel {
 public:
  explicit LibraryKernel(KernelSpec spec) {
    spec.device = Device{};
    kernel_ = make_kernel(spec);
    simulated::wait_for_streams();
  }
  size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  bool can_run_in_place(int output, int input) const override {
    return kernel_->can_run_in_place(output, input);
  }
  void run(const KernelContext& context) override {
    check_workspace(context.scratch);
    if (!std::exchange(has_run_, true)) simulated::wait_for_streams();
    const std::vector<const void*> inputs(context.inputs.begin(), context.inputs.end());
    const std::vector<void*> outputs(context.outputs.begin(), context.outputs.end());
    simulated::submit(*context.stream, [this, inputs, outputs, scratch = context.scratch,
                                        step = context.device_step] {
      static const StepInfo kNone;  // of what is not part of a step
      kernel_->run({inputs, outputs, scratch, step == nullptr ? kNone : *step});
    });
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  bool has_run_ = false;
};

std::unique_ptr<Kernel> make_library_kernel(const KernelSpec& spec) {
  return std::make_unique<LibraryKernel>(spec);
}

const bool kRegistered = [] {
  register_elementwise(DeviceType::kGpu, [](const ElementwiseProgram&, const KernelSpec& spec,
                                            size_t) { return make_library_kernel(spec); });
  return true;
}();

COHORT_REGISTER_KERNEL("MatMul", kGpu, make_library_kernel);
COHORT_REGISTER_KERNEL("FusedMatMul", kGpu, make_library_kernel);

}  // namespace
}  // namespace cohort
