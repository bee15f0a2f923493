#include "core/kernels/cuda/matmul_problem.h"

#include <algorithm>
#include <utility>

namespace cohort::cuda {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

size_t MatMulProblem::Matrix::offset(int64_t batch) const {
  return static_cast<size_t>(batch * batch_stride) * dtype_size(dtype);
}

MatMulProblem::MatMulProblem(const KernelSpec& spec)
    : transpose_first(spec.attributes.get<bool>("transpose_b")),
      transpose_second(spec.attributes.get<bool>("transpose_a")) {
  const Shape &a = spec.inputs[0].shape, &b = spec.inputs[1].shape;
  const int rank = a.rank();
  batches = a.count(0, rank - 2);
  int64_t rows = a.dim(transpose_second ? -1 : -2);
  k = a.dim(transpose_second ? -2 : -1);
  m = b.dim(transpose_first ? -2 : -1);
  // One b for all batches of an a that is not transposed makes a single tall product.
  if (b.rank() == 2 && !transpose_second) rows *= std::exchange(batches, 1);
  n = rows;
  const int64_t b_stride = b.rank() == 2 ? 0 : k * m;
  first = transpose_first ? Matrix{k, m, b_stride, spec.inputs[1].dtype}
                          : Matrix{m, k, b_stride, spec.inputs[1].dtype};
  second = transpose_second ? Matrix{n, k, n * k, spec.inputs[0].dtype}
                            : Matrix{k, n, n * k, spec.inputs[0].dtype};
  result = {m, n, m * n, spec.outputs[0].dtype};
}

int64_t MatMulProblem::slices() const { return divide_up(batches, kMostBatches); }

int64_t MatMulProblem::slice_batches() const { return divide_up(batches, slices()); }

int64_t MatMulProblem::first_batch(int64_t slice) const {
  return std::min(slice * slice_batches(), batches - slice_batches());
}

MatMulEpilogue choose_epilogue(const KernelSpec& spec) {
  MatMulEpilogue epilogue;
  if (spec.inputs.size() < 3) return epilogue;
  const auto activation = spec.attributes.get_or<std::string>("activation", "");
  const DType y = spec.outputs[0].dtype;
  // The libraries have epilogues for what tensor cores compute.
  epilogue.bias = y != DType::kFloat64 && spec.inputs[2].dtype == y;
  epilogue.gelu = epilogue.bias && activation == "GeluTanh";
  epilogue.complete = epilogue.bias && (activation.empty() || epilogue.gelu);
  return epilogue;
}

}  // namespace cohort::cuda
