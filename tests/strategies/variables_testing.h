#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "strategies/central_storage_strategy.h"
#include "strategies/mirrored_strategy.h"
#include "strategies/one_device_strategy.h"

// What tests of the variables of strategies on one host share: each runs under every strategy, with
// several numbers of replicas.
namespace cohort {

inline constexpr int kMaxReplicas = 7;

enum class Kind { kOneDevice, kMirrored, kCentral };
struct Case {
  Kind kind;
  int replicas;
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  const char* names[] = {"OneDevice", "Mirrored", "Central"};
  return out << names[static_cast<int>(c.kind)] << c.replicas;
}

inline std::unique_ptr<Strategy> make_strategy(const Case& c) {
  std::vector<std::string> devices;
  for (int r = 0; r < c.replicas; ++r) devices.push_back(str("cpu:", r));
  if (c.kind == Kind::kMirrored)
    return std::make_unique<MirroredStrategy>(MirroredStrategy::Options{.devices = devices});
  if (c.kind == Kind::kCentral)
    return std::make_unique<CentralStorageStrategy>(
        CentralStorageStrategy::Options{.compute_devices = devices});
  return OneDeviceStrategy("cpu:1");
}

// The error that `f` throws, which has to have this code.
inline std::string error_of(Code code, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::vector<double> to_doubles(const Tensor& tensor) {
  const Tensor wide = tensor.cast(DType::kFloat64);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

using VariablePtr = std::shared_ptr<Variable>;

struct Kept {
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
};

inline VariablePtr make_variable(const Tensor& initial, const Kept& kept) {
  return create_variable({.name = "v",
                          .spec = initial.spec(),
                          .initial_value = [initial] { return initial; },
                          .trainable = false,
                          .synchronization = kept.synchronization,
                          .aggregation = kept.aggregation});
}

inline VariablePtr on_write(const Tensor& initial, Aggregation aggregation) {
  return make_variable(initial, {Synchronization::kOnWrite, aggregation});
}

inline VariablePtr on_read(const Tensor& initial, Aggregation aggregation) {
  return make_variable(initial, {Synchronization::kOnRead, aggregation});
}

inline Tensor number(double value, DType dtype = DType::kFloat32) {
  return Tensor::full(dtype, {}, value);
}

inline constexpr Aggregation kAggregations[] = {Aggregation::kNone, Aggregation::kSum,
                                                Aggregation::kMean, Aggregation::kOnlyFirstReplica};

class VariablesTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kMaxReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  std::unique_ptr<Strategy> strategy_ = make_strategy(GetParam());
  const int n_ = GetParam().replicas;
  Strategy::Scope scope_ = strategy_->scope();

  // f(r) for each replica.
  PerReplica<Tensor> each(const std::function<double(int)>& f,
                          DType dtype = DType::kFloat32) const {
    PerReplica<Tensor> values(static_cast<size_t>(n_));
    for (int r = 0; r < n_; ++r) values[static_cast<size_t>(r)] = number(f(r), dtype);
    return values;
  }
  PerReplica<Tensor> ids() const {
    return each([](int r) { return r; });
  }

  template <typename Step, typename... Arguments>
  auto run(Step step, const Arguments&... arguments) {
    return strategy_->run(strategy_->function(std::move(step)), arguments...);
  }

  static std::vector<double> results(const PerReplica<Tensor>& values) {
    std::vector<double> all;
    for (const Tensor& value : values) all.push_back(value.item());
    return all;
  }

  // The values that replicas see.
  std::vector<double> copies(const VariablePtr& v) const {
    std::vector<double> all;
    for (int r = 0; r < n_; ++r) {
      const auto values = to_doubles(v->storage(r));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::vector<double> n_times(const std::vector<double>& values) const {
    std::vector<double> all;
    for (int r = 0; r < n_; ++r) all.insert(all.end(), values.begin(), values.end());
    return all;
  }
  std::vector<double> n_times(double value) const { return n_times(std::vector{value}); }

  // What an aggregation makes of x(r).
  double combined(Aggregation aggregation, const std::function<double(int)>& x) const {
    if (aggregation == Aggregation::kOnlyFirstReplica || n_ == 1) return x(0);
    double sum = 0;
    for (int r = 0; r < n_; ++r) sum += x(r);
    return aggregation == Aggregation::kSum ? sum : sum / n_;
  }
};

inline std::vector<Case> all_cases() {
  std::vector<Case> cases = {{Kind::kOneDevice, 1}};
  for (const int replicas : {1, 2, 3, 4, kMaxReplicas})
    for (const Kind kind : {Kind::kMirrored, Kind::kCentral}) cases.push_back({kind, replicas});
  return cases;
}

}  // namespace cohort
