#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/distribute/strategy.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"

namespace cohort::testing {

using VariablePtr = std::shared_ptr<Variable>;

inline VariablePtr make_weight(const std::string& name, const Tensor& value) {
  return create_variable(
      {.name = name, .spec = value.spec(), .initial_value = [value] { return value.clone(); }});
}

inline VariablePtr make_weight(const std::string& name, std::vector<double> values) {
  return make_weight(name, Tensor::from(values, {static_cast<int64_t>(values.size())}));
}

// A step whose gradient is its input.
inline Function step_along_input(const optim::Optimizer& optimizer, const VariablePtr& weight) {
  return Function([=](const std::vector<Value>& in) {
    optimizer.minimize(ops::reduce_sum(weight->read() * in[0]), {weight});
    return std::vector<Value>{};
  });
}

inline Tensor vector(std::vector<double> values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

inline std::vector<double> to_vector(const Tensor& tensor) {
  const Tensor x = tensor.cast(DType::kFloat64);
  return {x.values<double>().begin(), x.values<double>().end()};
}

inline void expect_near(const Tensor& actual, const std::vector<double>& expected,
                        double tolerance = 1e-12) {
  const auto values = to_vector(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
}

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
