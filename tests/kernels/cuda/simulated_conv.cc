#include <algorithm>
#include <vector>

#include "core/device/simulated/simulated_gpus.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/cuda/conv_problem.h"
#include "tests/kernels/cuda/workspace.h"

// Convolutions as a library does them, by the dimensions and strides of the problem alone.
namespace cohort::cuda {
namespace {

using Types = TypeList<float, bfloat16, float16>;

std::vector<double> load(const ConvTensor& tensor, const void* data) {
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  dispatch(Types{}, tensor.dtype, "a simulated convolution", [&]<typename T>() {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = convert<double>(static_cast<const T*>(data)[i]);
  });
  return values;
}

void store(const ConvTensor& tensor, void* data, const std::vector<double>& values) {
  dispatch(Types{}, tensor.dtype, "a simulated convolution", [&]<typename T>() {
    for (size_t i = 0; i < values.size(); ++i) static_cast<T*>(data)[i] = convert<T>(values[i]);
  });
}

int64_t offset(const ConvTensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3];
}

// Calls visit(offset in x, in the filter, in y) for every product.
template <typename F>
void for_each_product(const ConvProblem& p, F visit) {
  const auto &x = p.x.dims, &f = p.filter.dims, &y = p.y.dims;
  const int64_t group_out = f[0] / (x[1] / f[1]);
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t row = 0; row < y[2]; ++row)
        for (int64_t column = 0; column < y[3]; ++column)
          for (int64_t c = 0; c < f[1]; ++c)
            for (int64_t r = 0; r < f[2]; ++r)
              for (int64_t s = 0; s < f[3]; ++s) {
                const int64_t h = row * p.strides[0] - p.padding[0] + r * p.dilations[0],
                              w = column * p.strides[1] - p.padding[1] + s * p.dilations[1];
                if (h >= 0 && h < x[2] && w >= 0 && w < x[3])
                  visit(offset(p.x, n, k / group_out * f[1] + c, h, w),
                        offset(p.filter, k, c, r, s), offset(p.y, n, k, row, column));
              }
}

// What follows the products of y, whose channels are its neighbours in memory.
void finish(const ConvProblem& p, const void* bias, std::vector<double>& y) {
  const int64_t channels = p.y.dims[1];
  const auto addends =
      load({p.y.dtype, {1, channels, 1, 1}, {channels, 1, channels, channels}}, bias);
  for (size_t i = 0; i < y.size(); ++i) y[i] += addends[i % addends.size()];
}

class SimulatedConvPlan final : public ConvPlan {
 public:
  explicit SimulatedConvPlan(const ConvProblem& problem) : p_(problem) {}
  // Some, whose place must not be anybody else's.
  size_t workspace_bytes() const override { return 100; }
  void run(Stream& stream, const ConvMemory& memory, void* workspace) override {
    check_workspace(workspace);
    simulated::submit(stream, [=, p = p_] {
      std::fill_n(static_cast<char*>(workspace), 100, '\xAB');
      std::vector<double> in = load(p.x, memory.x), taps = load(p.filter, memory.filter),
                          out = load(p.y, memory.y);
      std::vector<double>& sums = p.result == ConvResult::kX   ? in
                                  : p.result == ConvResult::kY ? out
                                                               : taps;
      std::fill(sums.begin(), sums.end(), 0);
      for_each_product(p, [&](int64_t i, int64_t f, int64_t o) {
        double &a = in[static_cast<size_t>(i)], &b = taps[static_cast<size_t>(f)],
               &c = out[static_cast<size_t>(o)];
        if (p.result == ConvResult::kY)
          c += a * b;
        else if (p.result == ConvResult::kX)
          a += b * c;
        else
          b += a * c;
      });
      if (p.bias) finish(p, memory.bias, out);
      if (p.result == ConvResult::kX)
        store(p.x, memory.x, in);
      else if (p.result == ConvResult::kY)
        store(p.y, memory.y, out);
      else
        store(p.filter, memory.filter, taps);
    });
  }

 private:
  const ConvProblem p_;
};

}  // namespace

// As cuDNN it refuses some, which are left to plain loops: float64, tensors of several types, and
// grouped ones of 16 bits. An epilogue it has for 16 bits alone.
std::shared_ptr<ConvPlan> find_conv_plan(const ConvProblem& problem, Device) {
  const bool grouped = problem.x.dims[1] != problem.filter.dims[1];
  if (problem.x.dtype != problem.y.dtype || problem.filter.dtype != problem.y.dtype) return nullptr;
  if (problem.x.dtype == DType::kFloat64 || (grouped && dtype_size(problem.x.dtype) == 2))
    return nullptr;
  if (problem.bias && problem.x.dtype == DType::kFloat32) return nullptr;
  return std::make_shared<SimulatedConvPlan>(problem);
}

}  // namespace cohort::cuda
