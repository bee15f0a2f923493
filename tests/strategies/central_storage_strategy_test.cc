#include "strategies/central_storage_strategy.h"

#include <gtest/gtest.h>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "tests/distribute/counting_ops.h"
#include "tests/testing/error_of.h"

namespace cohort {
namespace {

class CentralStorageStrategyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(4, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }
};

Device cpu(int index) { return {DeviceType::kCpu, index}; }

std::shared_ptr<Variable> make_variable(Synchronization synchronization = Synchronization::kAuto,
                                        Aggregation aggregation = Aggregation::kNone) {
  return create_variable({.name = "v",
                          .spec = {DType::kFloat32, {3}},
                          .initial_value = [] { return Tensor::full(DType::kFloat32, {3}, 1); },
                          .synchronization = synchronization,
                          .aggregation = aggregation});
}

TEST_F(CentralStorageStrategyTest, ComputesOnAllCpusAndKeepsVariablesOnTheFirst) {
  CentralStorageStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.devices(), (std::vector<Device>{cpu(0), cpu(1), cpu(2), cpu(3)}));
  EXPECT_EQ(strategy.parameter_device(), cpu(0));
}

TEST_F(CentralStorageStrategyTest, KeepsVariablesOnTheOnlyComputeDevice) {
  CentralStorageStrategy alone({.compute_devices = {"cpu:2"}});
  EXPECT_EQ(alone.parameter_device(), cpu(2));
  CentralStorageStrategy two({.compute_devices = {"cpu:2", "cpu:3"}});
  EXPECT_EQ(two.parameter_device(), cpu(0));
  CentralStorageStrategy chosen(
      {.compute_devices = {"cpu:0", "cpu:1"}, .parameter_device = "cpu:3"});
  EXPECT_EQ(chosen.parameter_device(), cpu(3));
  const auto scope = chosen.scope();
  EXPECT_EQ(make_variable()->devices(), std::vector<Device>{cpu(3)});
}

TEST_F(CentralStorageStrategyTest, RefusesDevicesThatDoNotExistOrComeTwice) {
  const auto code_of = [](const CentralStorageStrategy::Options& options) {
    return testing::error_of([&] { CentralStorageStrategy{options}; }).code();
  };
  EXPECT_EQ(code_of({.compute_devices = {"cpu:0", "cpu:44"}}), Code::kNotFound);
  EXPECT_EQ(code_of({.parameter_device = "cpu:9"}), Code::kNotFound);
  EXPECT_EQ(code_of({.parameter_device = "disk"}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.compute_devices = {"cpu:1", "cpu:1"}}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.communication = {.bytes_per_pack = -1}}), Code::kInvalidArgument);
}

TEST_F(CentralStorageStrategyTest, ThereIsOneCopyWhichTheFirstReplicaWrites) {
  CentralStorageStrategy strategy;
  const auto scope = strategy.scope();
  const auto variable = make_variable();
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(variable->storage(r).raw(), variable->storage(0).raw());
    EXPECT_EQ(variable->is_written_by(r), r == 0);
  }
}

TEST_F(CentralStorageStrategyTest, VariablesThatAreNotSynchronisedOnWriteHaveACopyForEachReplica) {
  CentralStorageStrategy strategy;
  const auto scope = strategy.scope();
  const auto total = make_variable(Synchronization::kOnRead, Aggregation::kSum);
  const auto own = make_variable(Synchronization::kNone);
  const auto step = strategy.function([&](Value x) {
    total->assign(x);
    own->assign(x * 2.0);
    return own->read();
  });
  PerReplica<Tensor> inputs(4);
  for (int r = 0; r < 4; ++r) inputs[r] = Tensor::full(DType::kFloat32, {3}, r);
  const auto values = strategy.run(step, inputs);
  EXPECT_EQ(total->devices().size(), 4u);
  EXPECT_EQ(total->value().data<float>()[1], 6);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(values[r].data<float>()[0], 2 * r);
}

TEST_F(CentralStorageStrategyTest, CombinesValuesAsTheProgramSays) {
  const auto counting = std::make_shared<testing::Counting>();
  CentralStorageStrategy strategy({.cross_device_ops = counting});
  const auto step = strategy.function([](Value x) {
    return get_replica_context()->all_reduce(ReduceOp::kSum, ops::reshape(x, {1}));
  });
  const auto sums = strategy.run(step, 1.0f);
  EXPECT_EQ(sums[3].item(), 4);
  EXPECT_EQ(strategy.reduce("mean", sums).item(), 4);
  EXPECT_EQ(strategy.gather(sums, 0).num_elements(), 4);
  EXPECT_EQ(counting->groups, 1);
  EXPECT_EQ(counting->reductions, 1);
  EXPECT_EQ(counting->gathers, 1);
}

// Reads and updates of a large variable: a replica that reads while another one writes would see
// some other sum.
TEST_F(CentralStorageStrategyTest, NoReplicaReadsWhileAnotherOneUpdates) {
  constexpr int64_t kSize = 1 << 16;
  constexpr int kSteps = 100;
  CentralStorageStrategy strategy;
  const auto scope = strategy.scope();
  const auto variable = create_variable({.spec = {DType::kFloat64, {kSize}}, .initial_value = [] {
                                           return Tensor::zeros(DType::kFloat64, {kSize});
                                         }});
  const auto step = strategy.function([&](Value x) {
    const Value before = ops::reduce_sum(variable->read());
    const auto one = strategy.reduce_gradients({Gradient{.values = x}})[0].values;
    strategy.begin_update();
    variable->update(variable->read() + one);
    strategy.end_update();
    return std::vector<Value>{before, ops::reduce_sum(variable->read())};
  });
  for (int i = 0; i < kSteps; ++i) {
    const auto sums = strategy.run(step, Tensor::full(DType::kFloat64, {kSize}, 0.25));
    for (int r = 0; r < 4; ++r) {
      ASSERT_EQ(sums[0][r].item(), static_cast<double>(i) * kSize) << "step " << i;
      ASSERT_EQ(sums[1][r].item(), static_cast<double>(i + 1) * kSize) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace cohort
