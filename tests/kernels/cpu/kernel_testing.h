#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/kernels/kernel.h"
#include "core/tensor/tensor.h"
#include "tests/kernels/cpu/tested_device.h"

// Runs single kernels and compares them with plain reference results.
namespace cohort::testing {

inline constexpr uint64_t kSeed = 20240607;

struct RunOptions {
  int threads = 1;
  StepInfo step = {};
  bool misaligned = false;  // inputs start one element after an aligned address
  int in_place_output = -1, in_place_input = -1;  // give this output that input's memory
};

inline Tensor misaligned_copy(const Tensor& tensor) {
  const size_t offset = dtype_size(tensor.dtype());
  Tensor copy(tensor.dtype(), tensor.shape(), allocate_host_buffer(tensor.bytes() + offset),
              offset);
  std::memcpy(copy.raw(), tensor.raw(), tensor.bytes());
  return copy;
}

// The outputs of an op's kernel on the tested device. Outputs and scratch are poisoned first, so
// that an element which is not written, or a read of undefined scratch, shows.
inline std::vector<Tensor> run_kernel(std::string_view op, const std::vector<Tensor>& inputs,
                                      const std::vector<TensorSpec>& output_specs,
                                      const Attributes& attributes = {},
                                      const RunOptions& options = {}) {
  set_num_threads(options.threads);
  KernelSpec spec{op, {}, output_specs, attributes, tested_device(), num_threads()};
  std::vector<Tensor> sources, outputs;
  std::vector<const void*> input_pointers;
  std::vector<void*> output_pointers;
  for (const Tensor& input : inputs) {
    spec.inputs.push_back(input.spec());
    sources.push_back(options.misaligned ? misaligned_copy(input) : input.clone());
    input_pointers.push_back(sources.back().raw());
  }
  const auto kernel = make_tested_kernel(spec);
  for (size_t i = 0; i < output_specs.size(); ++i) {
    const bool in_place = static_cast<int>(i) == options.in_place_output;
    outputs.push_back(in_place ? sources[options.in_place_input]
                               : Tensor(output_specs[i].dtype, output_specs[i].shape));
    if (in_place)
      EXPECT_TRUE(kernel->can_run_in_place(options.in_place_output, options.in_place_input)) << op;
    else
      std::memset(outputs.back().raw(), 0xCD, outputs.back().bytes());
    output_pointers.push_back(outputs.back().raw());
  }
  const auto scratch = allocate_host_buffer(kernel->scratch_bytes());
  std::memset(scratch->data, 0xFF, kernel->scratch_bytes());
  run_tested_kernel(*kernel, spec, {input_pointers, output_pointers, scratch->data, options.step});
  set_num_threads(1);
  return outputs;
}

inline std::vector<double> to_doubles(const Tensor& tensor) {
  const Tensor wide = tensor.cast(DType::kFloat64);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

// Uniform numbers in [low, high), rounded to the dtype.
inline Tensor random_tensor(DType dtype, const Shape& shape, double low, double high,
                            uint64_t stream = 0) {
  RandomStream random(kSeed, stream);
  Tensor wide(DType::kFloat64, shape);
  for (int64_t i = 0; i < wide.num_elements(); ++i)
    wide.data<double>()[i] = low + (high - low) * random.uniform();
  return wide.cast(dtype);
}

// The largest relative error to expect of a result rounded to the dtype.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4e-6;
    case DType::kFloat64:
      return 1e-12;
    case DType::kBFloat16:
      return 8e-3;
    case DType::kFloat16:
      return 1e-3;
    default:
      return 0;
  }
}

// Compares with NaN equal to NaN, and an infinity to itself alone; errors are relative to max(1,
// |expected|).
inline void expect_near(const std::vector<double>& expected, const Tensor& actual, double tolerance,
                        const std::string& what) {
  const auto values = to_doubles(actual);
  ASSERT_EQ(expected.size(), values.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same =
        values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]));
    const bool near =
        std::isfinite(expected[i]) &&
        std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]));
    ASSERT_TRUE(same || near) << what << ": element " << i << " is " << values[i] << ", expected "
                              << expected[i] << " (seed " << kSeed << ")";
  }
}

inline void expect_same_bytes(const Tensor& expected, const Tensor& actual,
                              const std::string& what) {
  ASSERT_EQ(expected.spec(), actual.spec()) << what;
  EXPECT_EQ(std::memcmp(expected.raw(), actual.raw(), expected.bytes()), 0) << what;
}

// Position of element `index` of `shape` along each axis.
inline std::vector<int64_t> unravel(int64_t index, const Shape& shape) {
  std::vector<int64_t> position(shape.rank());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    position[i] = index % shape[i];
    index /= shape[i];
  }
  return position;
}

// Index of the element at `position` of `shape`, which may have fewer axes or extents of 1
// (broadcast).
inline int64_t ravel_broadcast(const std::vector<int64_t>& position, const Shape& shape) {
  int64_t index = 0;
  const size_t added = position.size() - shape.rank();
  for (int i = 0; i < shape.rank(); ++i)
    index = index * shape[i] + (shape[i] == 1 ? 0 : position[added + i]);
  return index;
}

}  // namespace cohort::testing
