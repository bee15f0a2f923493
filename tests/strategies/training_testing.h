#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/data/element.h"
#include "core/device/device.h"
#include "core/distribute/strategy.h"
#include "core/optim/optimizer.h"

// What tests share that train a program under several strategies and compare what comes of it.
namespace cohort {

using VariablePtr = std::shared_ptr<Variable>;

// "cpu:0" and so on.
inline std::vector<std::string> device_names(int count, DeviceType type = DeviceType::kCpu) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(str(Device{type, i}));
  return devices;
}

// Numbers between -1 and 1 that depend on `salt` alone.
inline Tensor numbers(DType dtype, const Shape& shape, double salt) {
  Tensor t(DType::kFloat64, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<double>()[i] = std::sin(salt + 1.7 * static_cast<double>(i));
  return t.cast(dtype);
}

inline VariablePtr weight(const std::string& name, DType dtype, const Shape& shape, double salt) {
  return create_variable({.name = name, .spec = {dtype, shape}, .initial_value = [=] {
                            return numbers(dtype, shape, salt);
                          }});
}

// Weights that are trained, and the loss of a batch, by global rows.
struct Program {
  std::vector<VariablePtr> variables;
  std::function<Value(const BatchValues&)> loss;
};
using MakeProgram = std::function<Program()>;
using MakeOptimizer = std::function<optim::Optimizer()>;

inline PerReplica<data::Batch> split(const Strategy& strategy, const data::Batch& batch) {
  PerReplica<data::Batch> parts(strategy.devices().size());
  for (const auto& field : batch) {
    const auto shares = strategy.split_batch({field.tensor});
    for (size_t r = 0; r < parts.size(); ++r) parts[r].set(field.name, shares[r][0]);
  }
  return parts;
}

struct Trained {
  std::vector<double> losses;
  std::vector<Tensor> weights;
};

// What a local replica has of a variable, wherever that is.
inline std::string bits_of_copy(Variable& variable, size_t replica) {
  const Tensor memory = variable.storage(static_cast<int>(replica));
  const auto devices = variable.devices();  // fewer than replicas where these share a copy
  const Device home = devices[std::min(replica, devices.size() - 1)];
  std::string bits(memory.bytes(), '\0');
  device_backend(home.type).copy_to_host(home, memory.raw(), bits.data(), bits.size());
  return bits;
}

// Replicas must never see different weights.
inline void expect_equal_copies(const Strategy& strategy, const VariablePtr& variable) {
  const std::string first = bits_of_copy(*variable, 0);
  for (size_t r = 1; r < strategy.devices().size(); ++r)
    EXPECT_TRUE(bits_of_copy(*variable, r) == first)
        << variable->name() << " of replica " << r << " went its own way";
}

// Makes a program and an optimizer under the strategy, and trains a step on each global batch.
inline Trained train_on(Strategy& strategy, const MakeProgram& make,
                        const MakeOptimizer& make_optimizer,
                        const std::vector<data::Batch>& batches) {
  const auto scope = strategy.scope();
  const Program program = make();
  const optim::Optimizer optimizer = make_optimizer();
  const auto step = strategy.function([&](const BatchValues& batch) {
    Value loss = program.loss(batch);
    optimizer.minimize(loss, program.variables);
    return loss;
  });
  Trained trained;
  for (const data::Batch& batch : batches) {
    const auto losses = strategy.run(step, split(strategy, batch));
    trained.losses.push_back(strategy.reduce(ReduceOp::kSum, losses).item());
  }
  for (const auto& variable : program.variables) {
    expect_equal_copies(strategy, variable);
    trained.weights.push_back(variable->value());
  }
  for (const auto& variable : optimizer.variables())
    if (variable->synchronization() != Synchronization::kOnRead &&  // each replica's own sums
        !variable->devices().empty())                               // kept by servers alone
      expect_equal_copies(strategy, variable);
  return trained;
}

inline void expect_near(const Trained& found, const Trained& expected, double tolerance) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * (1 + expected.losses[i]))
        << "loss of step " << i;
  for (size_t v = 0; v < found.weights.size(); ++v) {
    const Tensor a = found.weights[v].cast(DType::kFloat64),
                 b = expected.weights[v].cast(DType::kFloat64);
    for (int64_t i = 0; i < a.num_elements(); ++i)
      ASSERT_NEAR(a.data<double>()[i], b.data<double>()[i], tolerance)
          << "element " << i << " of variable " << v;
  }
}

}  // namespace cohort
