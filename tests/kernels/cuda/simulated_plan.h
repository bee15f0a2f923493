#pragma once

#include "core/device/simulated/simulated_gpus.h"
#include "core/kernels/cuda/library_plan.h"
#include "tests/kernels/cuda/workspace.h"

namespace cohort::cuda {

// What a library does, by the CPU's kernel of the node that `spec` describes.
class SimulatedPlan final : public LibraryPlan {
 public:
  explicit SimulatedPlan(const KernelSpec& spec)
      : inputs_(static_cast<int64_t>(spec.inputs.size())), kernel_(make_kernel(spec)) {}

  size_t workspace_bytes() const override { return kernel_->scratch_bytes(); }
  void run(Stream& stream, std::span<void* const> tensors, void* workspace) override {
    check_workspace(workspace);
    const std::vector<const void*> inputs(tensors.begin(), tensors.begin() + inputs_);
    const std::vector<void*> outputs(tensors.begin() + inputs_, tensors.end());
    simulated::submit(stream, [kernel = kernel_, inputs, outputs, workspace] {
      kernel->run({inputs, outputs, workspace, StepInfo{}});
    });
  }

 private:
  int64_t inputs_;
  std::shared_ptr<Kernel> kernel_;
};

}  // namespace cohort::cuda
