#include "core/kernels/cuda/row_norm_problem.h"
#include "tests/kernels/cuda/simulated_plan.h"

namespace cohort::cuda {
namespace {

KernelSpec spec_of(const RowNormProblem& p, const Attributes& attributes) {
  const TensorSpec x{p.dtype, {p.rows, p.columns}}, gamma{p.parameter, {p.columns}},
      statistic{DType::kFloat32, {p.rows}};
  if (p.centered && p.gradient)
    return {"LayerNormGrad", {x, x, gamma, statistic, statistic}, {x, gamma, gamma}, attributes};
  if (p.centered) return {"LayerNorm", {x, gamma, gamma}, {x, statistic, statistic}, attributes};
  if (p.gradient) return {"RmsNormGrad", {x, x, gamma, statistic}, {x, gamma}, attributes};
  return {"RmsNorm", {x, gamma}, {x, statistic}, attributes};
}

}  // namespace

// None for float16, so that what is done without the library is tested in 16 bits as well.
std::shared_ptr<LibraryPlan> find_row_norm_plan(const RowNormProblem& problem, Device) {
  if (problem.dtype == DType::kFloat16) return nullptr;
  const Attributes attributes = {{"epsilon", static_cast<double>(problem.epsilon)}};
  return std::make_shared<SimulatedPlan>(spec_of(problem, attributes));
}

}  // namespace cohort::cuda
