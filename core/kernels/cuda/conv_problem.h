#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/kernels/common/conv_sizes.h"

namespace cohort::cuda {

// A tensor as cuDNN describes it: four dimensions in the order that it names them, with strides in
// elements.
struct ConvTensor {
  DType dtype;
  std::array<int64_t, 4> dims, strides;

  auto operator<=>(const ConvTensor&) const = default;
  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  size_t bytes() const { return static_cast<size_t>(elements()) * dtype_size(dtype); }
};

// Which of the three tensors of a convolution is computed from the other two.
enum class ConvResult { kY, kX, kFilter };

// A convolution as cuDNN takes it, and with that all that a plan of it depends on: x is
// [batch, channels, height, width] and y likewise, lying channel after channel; the filter is
// [out, in of a group, height, width] and lies as [out, height, width, in]. Padding is the same on
// both sides, because cuDNN knows no other on all engines.
struct ConvProblem {
  ConvResult result;
  ConvTensor x, filter, y;
  std::array<int64_t, 2> padding, strides, dilations;
  bool tf32;          // of float32, which may be rounded to it
  bool bias = false;  // behind y: one for each of its channels, of its dtype

  auto operator<=>(const ConvProblem&) const = default;
};

// How a node becomes a ConvProblem. What padding is more on one side than on the other becomes part
// of x, which is then larger by a border of zeros.
struct ConvTask {
  ConvProblem problem;
  int64_t top, left;  // the border before the first row and column of x
  bool has_border;
  bool is_empty;  // there is nothing to multiply

  // The dtypes are those of x, the filter and y.
  ConvTask(const ConvSizes& sizes, ConvResult result, std::array<DType, 3> dtypes, bool tf32);
};

// `problem`, of y, with all that follows the product of `spec`; none where nothing does, or
// something that a ConvProblem has no words for, as is ReLU: of cuDNN's engines only the slowest
// keeps NaN.
std::optional<ConvProblem> with_epilogue(const ConvProblem& problem, const KernelSpec& spec);

// The tensors of a ConvProblem, laid out as it says.
struct ConvMemory {
  void *x, *filter, *y;
  void* bias = nullptr;  // where it has one
};

// What a library does for a ConvProblem.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  // Hands the work over. The result is written, all else is read.
  virtual void run(Stream& stream, const ConvMemory& memory, void* workspace) = 0;
};

// The library's plan for a problem on `device`, cached; null where it has none. One source of this
// is linked: cuDNN's, or a simulation in tests. Thread-safe.
std::shared_ptr<ConvPlan> find_conv_plan(const ConvProblem& problem, Device device);

}  // namespace cohort::cuda
