#include "core/device/simulated/simulated_gpus.h"
#include "core/kernels/cuda/attention_problem.h"
#include "tests/kernels/cuda/workspace.h"

// Attention as a library does it, by the CPU's kernels.
namespace cohort::cuda {
namespace {

KernelSpec spec_of(const AttentionProblem& p, const Attributes& attributes) {
  const TensorSpec q{p.dtype, {p.batch, p.queries, p.heads, p.size}},
      k{p.dtype, {p.batch, p.keys, p.heads, p.size}},
      lse{DType::kFloat32, {p.batch, p.heads, p.queries}};
  if (!p.gradient) return {"Attention", {q, k, k}, {q, lse}, attributes, Device{}, 1};
  return {"AttentionGrad", {q, q, k, k, q, lse}, {q, k, k}, attributes, Device{}, 1};
}

class SimulatedAttentionPlan final : public AttentionPlan {
 public:
  explicit SimulatedAttentionPlan(const AttentionProblem& p) : inputs_(p.gradient ? 6 : 3) {
    const Attributes attributes = {{"causal", p.causal}, {"scale", static_cast<double>(p.scale)}};
    kernel_ = make_kernel(spec_of(p, attributes));
  }
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

}  // namespace

// None for float16, so that what is done without the library is tested in 16 bits as well.
std::shared_ptr<AttentionPlan> find_attention_plan(const AttentionProblem& problem, Device) {
  if (problem.dtype == DType::kFloat16) return nullptr;
  return std::make_shared<SimulatedAttentionPlan>(problem);
}

}  // namespace cohort::cuda
