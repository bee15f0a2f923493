#include "core/kernels/cuda/attention_problem.h"
#include "tests/kernels/cuda/simulated_plan.h"

namespace cohort::cuda {
namespace {

KernelSpec spec_of(const AttentionProblem& p, const Attributes& attributes) {
  const TensorSpec q{p.dtype, {p.batch, p.queries, p.heads, p.size}},
      k{p.dtype, {p.batch, p.keys, p.heads, p.size}},
      lse{DType::kFloat32, {p.batch, p.heads, p.queries}};
  if (!p.gradient) return {"Attention", {q, k, k}, {q, lse}, attributes, Device{}, 1};
  return {"AttentionGrad", {q, q, k, k, q, lse}, {q, k, k}, attributes, Device{}, 1};
}

}  // namespace

// None for float16, so that what is done without the library is tested in 16 bits as well.
std::shared_ptr<LibraryPlan> find_attention_plan(const AttentionProblem& problem, Device) {
  if (problem.dtype == DType::kFloat16) return nullptr;
  const Attributes attributes = {{"causal", problem.causal},
                                 {"scale", static_cast<double>(problem.scale)}};
  return std::make_shared<SimulatedPlan>(spec_of(problem, attributes));
}

}  // namespace cohort::cuda
