#include "core/kernels/cuda/conv_problem.h"

#include <algorithm>

namespace cohort::cuda {
namespace {

// [n, c, h, w] with c innermost.
ConvTensor channels_last(DType dtype, int64_t n, int64_t c, int64_t h, int64_t w) {
  return {dtype, {n, c, h, w}, {h * w * c, 1, w * c, c}};
}

}  // namespace

ConvTask::ConvTask(const ConvSizes& s, ConvResult result, std::array<DType, 3> dtypes, bool tf32) {
  const int64_t pad_h = std::min(s.top, s.bottom), pad_w = std::min(s.left, s.right);
  const int64_t in_h = s.in_h + s.top + s.bottom - 2 * pad_h,
                in_w = s.in_w + s.left + s.right - 2 * pad_w;
  top = s.top - pad_h;
  left = s.left - pad_w;
  has_border = in_h != s.in_h || in_w != s.in_w;
  problem = {result,
             channels_last(dtypes[0], s.batch, s.in_c, in_h, in_w),
             channels_last(dtypes[1], s.out_c, s.group_in(), s.kernel_h, s.kernel_w),
             channels_last(dtypes[2], s.batch, s.out_c, s.out_h, s.out_w),
             {pad_h, pad_w},
             {s.stride_h, s.stride_w},
             {s.dilation_h, s.dilation_w},
             tf32 && dtypes[0] == DType::kFloat32};
  is_empty =
      problem.x.elements() == 0 || problem.filter.elements() == 0 || problem.y.elements() == 0;
}

std::optional<ConvProblem> with_epilogue(const ConvProblem& problem, const KernelSpec& spec) {
  if (spec.inputs.size() != 3 || spec.inputs[2].dtype != problem.y.dtype) return std::nullopt;
  if (!spec.attributes.get_or<std::string>("activation", "").empty()) return std::nullopt;
  ConvProblem whole = problem;
  whole.bias = true;
  return whole;
}

}  // namespace cohort::cuda
