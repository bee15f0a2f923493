#pragma once

#include <compare>
#include <memory>

#include "core/kernels/cuda/library_plan.h"

namespace cohort::cuda {

// LayerNorm or RmsNorm, or the gradient of one, as a library takes it, and with that all that a
// plan of it depends on.
struct RowNormProblem {
  bool gradient;
  bool centered;           // LayerNorm
  DType dtype, parameter;  // of x, and of gamma
  int64_t rows, columns;
  float epsilon;  // 0 of gradients, which are given the statistics

  auto operator<=>(const RowNormProblem&) const = default;

  // Of LayerNorm, RmsNorm, LayerNormGrad or RmsNormGrad.
  explicit RowNormProblem(const KernelSpec& spec);
  // Whether libraries may have a plan that is worth it: of 16 bits, which our own kernels copy to
  // float32 and back.
  bool is_for_libraries() const;
};

// The library's plan for a problem on `device`, cached; null where it has none. One source of this
// is linked: cuDNN's, or a simulation in tests. Thread-safe.
std::shared_ptr<LibraryPlan> find_row_norm_plan(const RowNormProblem& problem, Device device);

}  // namespace cohort::cuda
