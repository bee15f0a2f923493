#pragma once

#include <functional>
#include <set>

#include "core/graph/op.h"
#include "core/tensor/specs_of.h"
#include "tests/kernels/cpu/kernel_testing.h"

// Checks kernels of neural-network ops against plain float64 references, in every floating dtype,
// with 1 and 2 threads, with inputs that are aligned and not, and in place where they can. Output
// specs are those that the ops infer.
namespace cohort {

using testing::kSeed;
using testing::RunOptions;
using Tensors = std::vector<Tensor>;
using List = std::vector<int64_t>;

inline Tensor random_tensor(const Shape& shape, uint64_t stream, double low = -1, double high = 1) {
  return testing::random_tensor(DType::kFloat64, shape, low, high, stream);
}

inline Tensors run_kernel(const std::string& op, const Tensors& inputs,
                          const Attributes& attributes,
                          const RunOptions& options = {.threads = 2}) {
  const auto inputs_specs = specs_of(inputs);
  return testing::run_kernel(op, inputs, find_op(op).infer({op, inputs_specs, attributes}),
                             attributes, options);
}

// Every element within `tolerance` of `want`, relative to the largest finite magnitude there (at
// least 1). An infinity is near itself alone.
inline void expect_close(const Tensor& got, const Tensor& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const Tensor values = got.cast(DType::kFloat64);
  double magnitude = 1, worst = 0;
  for (double w : want.values<double>())
    if (std::isfinite(w)) magnitude = std::max(magnitude, std::abs(w));
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double g = values.data<double>()[i], w = want.data<double>()[i];
    const double error = g == w ? 0 : std::abs(g - w);
    worst = error <= worst ? worst : error;  // NaN stays
    if (std::isnan(error)) break;
  }
  EXPECT_LE(worst, tolerance * magnitude)
      << what << ": " << to_string(got) << " instead of " << to_string(want);
}

inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-11;
    case DType::kFloat32:
      return 2e-5;
    case DType::kFloat16:
      return 4e-3;
    default:
      return 3e-2;
  }
}

// Every run that must give the same: by thread count, alignment, and the memory that outputs may
// share.
inline std::vector<RunOptions> ways_to_run(const std::string& op, const Tensors& inputs,
                                           const Attributes& attributes, const Tensors& outputs) {
  std::vector<RunOptions> ways = {
      {.threads = 1}, {.threads = 2}, {.threads = 2, .misaligned = true}};
  const auto kernel = testing::make_tested_kernel(
      {op, specs_of(inputs), specs_of(outputs), attributes, Device{}, num_threads()});
  for (int o = 0; o < static_cast<int>(outputs.size()); ++o)
    for (int i = 0; i < static_cast<int>(inputs.size()); ++i)
      if (outputs[o].spec() == inputs[i].spec() && kernel->can_run_in_place(o, i))
        ways.push_back({.threads = 2, .in_place_output = o, .in_place_input = i});
  return ways;
}

using Reference = std::function<Tensors(const Tensors& inputs, const Attributes& attributes)>;

// Checks the kernel of `op` in all dtypes. Floating `inputs` are float64 and rounded to the dtype
// first; those in `statistics` to at least float32.
inline void check_kernel(const std::string& op, const Tensors& inputs, const Attributes& attributes,
                         const Reference& reference, const std::set<size_t>& statistics = {}) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    Tensors given, exact;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const DType wanted =
          dtype != DType::kFloat64 && statistics.count(i) > 0 ? DType::kFloat32 : dtype;
      const bool real = inputs[i].dtype() == DType::kFloat64;
      given.push_back(real ? inputs[i].cast(wanted) : inputs[i]);
      exact.push_back(real ? given.back().cast(DType::kFloat64) : inputs[i]);
    }
    const Tensors want = reference(exact, attributes);
    for (const RunOptions& way :
         ways_to_run(op, given, attributes, run_kernel(op, given, attributes))) {
      const Tensors got = run_kernel(op, given, attributes, way);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        expect_close(
            got[i], want[i], tolerance_of(dtype),
            str(op, " of ", given[0].spec(), ", ", way.threads, " threads, ",
                way.misaligned ? "unaligned, " : "", "output ", way.in_place_output,
                " in place of input ", way.in_place_input, ": output ", i, ", seed ", kSeed));
    }
  }
}

}  // namespace cohort
