#include "core/kernels/cuda/row_norm_problem.h"

#include "core/kernels/common/row_sizes.h"

namespace cohort::cuda {

RowNormProblem::RowNormProblem(const KernelSpec& spec)
    : gradient(spec.op.ends_with("Grad")), centered(spec.op.starts_with("LayerNorm")) {
  const size_t x = gradient ? 1 : 0;  // behind dy
  const RowSizes sizes(spec.inputs[x].shape);
  dtype = spec.inputs[x].dtype;
  parameter = spec.inputs[x + 1].dtype;
  rows = sizes.rows;
  columns = sizes.columns;
  epsilon = gradient ? 0 : static_cast<float>(spec.attributes.get<double>("epsilon"));
}

bool RowNormProblem::is_for_libraries() const { return is_half(dtype) && rows > 0 && columns > 0; }

}  // namespace cohort::cuda
