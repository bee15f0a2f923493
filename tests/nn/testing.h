#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "core/nn/layers.h"
#include "core/runtime/function.h"

namespace cohort::testing {

inline constexpr uint64_t kSeed = 11;

// Uniform numbers in [-1, 1).
inline Tensor random_tensor(const Shape& shape, uint64_t stream = 0,
                            DType dtype = DType::kFloat32) {
  return initializers::random_uniform(-1, 1)({dtype, shape}, mix(kSeed, stream));
}

inline std::vector<double> to_vector(const Tensor& tensor) {
  const Tensor x = tensor.cast(DType::kFloat64);
  return {x.values<double>().begin(), x.values<double>().end()};
}

// What a layer makes of tensors.
inline Tensor run(const nn::Layer& layer, const std::vector<Tensor>& inputs,
                  bool training = false) {
  const Function f([&](const std::vector<Value>& values) {
    return std::vector<Value>{layer(values, {.training = training})};
  });
  return f(inputs)[0];
}

inline Tensor weight(const nn::Layer& layer, const std::string& suffix) {
  for (const auto& variable : layer.variables())
    if (variable->name().ends_with(suffix)) return variable->value();
  throw std::runtime_error("no weight " + suffix);
}

inline std::vector<std::string> names(const std::vector<std::shared_ptr<Variable>>& variables) {
  std::vector<std::string> out;
  for (const auto& variable : variables) out.push_back(variable->name());
  return out;
}

inline void expect_near(const Tensor& actual, const std::vector<double>& expected,
                        double tolerance = 1e-5) {
  const auto values = to_vector(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i << ", seed " << kSeed;
}

// The message of the cohort::Error that `f` throws.
inline std::string error_of(const std::function<void()>& f, Code code = Code::kInvalidArgument) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.message();
  }
  return "no error";
}

}  // namespace cohort::testing
