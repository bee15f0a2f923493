#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/central_storage_strategy.h"
#include "strategies/mirrored_strategy.h"

namespace cohort::testing {

constexpr int kMaxReplicas = 7;

// The names of the first `count` CPU devices.
inline std::vector<std::string> first_cpus(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(str("cpu:", i));
  return names;
}

// Tests with devices for kMaxReplicas replicas.
class DevicesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kMaxReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }
};

// Tests with a parameter: the number of replicas, each on a CPU device of its own.
class MirroredTest : public DevicesTest, public ::testing::WithParamInterface<int> {
 protected:
  static MirroredStrategy::Options first_cpus(int count) {
    return {.devices = ::cohort::testing::first_cpus(count)};
  }
};

// Replicas of one host, each with its copy of the variables or all with one.
struct Replicas {
  int count;
  bool central = false;
};
inline void PrintTo(const Replicas& replicas, std::ostream* out) {
  *out << (replicas.central ? "Central" : "Mirrored") << replicas.count;
}

inline std::unique_ptr<Strategy> make_strategy(const Replicas& replicas) {
  const auto devices = first_cpus(replicas.count);
  if (replicas.central)
    return std::make_unique<CentralStorageStrategy>(
        CentralStorageStrategy::Options{.compute_devices = devices});
  return std::make_unique<MirroredStrategy>(MirroredStrategy::Options{.devices = devices});
}

// Tests with a parameter: the replicas of `strategy`.
class ReplicasTest : public DevicesTest, public ::testing::WithParamInterface<Replicas> {
 protected:
  int replicas() const { return GetParam().count; }
  PerReplica<Tensor> each(const std::function<Tensor(int)>& value) const {
    std::vector<Tensor> list;
    for (int r = 0; r < replicas(); ++r) list.push_back(value(r));
    return list;
  }

  const std::unique_ptr<Strategy> owner_ = make_strategy(GetParam());
  Strategy& strategy = *owner_;
};
inline std::vector<Replicas> all_replicas() {
  std::vector<Replicas> all;
  for (const int count : {1, 2, 3, 4, kMaxReplicas})
    for (const bool central : {false, true}) all.push_back({count, central});
  return all;
}
#define COHORT_FOR_ALL_REPLICAS(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(Replicas, suite,                                        \
                           ::testing::ValuesIn(::cohort::testing::all_replicas()), \
                           ::testing::PrintToStringParamName())

// Expects an Error of this code whose message has all these parts.
inline void expect_error(Code code, const std::vector<std::string>& parts,
                         const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected " << code_name(code);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(error.message().find(part), std::string::npos) << part << " in: " << error.what();
  }
}

inline Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}
inline Tensor ints(const std::vector<int64_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

// The elements as doubles, whatever the dtype.
inline std::vector<double> elements(const Tensor& tensor) {
  const Tensor wide = tensor.cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.num_elements()};
}

}  // namespace cohort::testing
