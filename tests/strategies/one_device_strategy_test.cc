#include "strategies/one_device_strategy.h"

#include "core/data/distributed_dataset.h"
#include "core/optim/optimizers.h"
#include "tests/strategies/variables_testing.h"

namespace cohort {
namespace {

class OneDeviceStrategyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(2, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  const std::unique_ptr<Strategy> strategy_ = OneDeviceStrategy("cpu:1");
  const Device device_{DeviceType::kCpu, 1};
};

TEST_F(OneDeviceStrategyTest, IsOneReplicaOnItsDevice) {
  EXPECT_EQ(strategy_->name(), "OneDeviceStrategy");
  EXPECT_EQ(strategy_->num_replicas_in_sync(), 1);
  EXPECT_EQ(strategy_->devices(), std::vector{device_});
  EXPECT_EQ(OneDeviceStrategy()->devices(), std::vector{Device{}});
  const auto scope = strategy_->scope();
  EXPECT_TRUE(has_strategy());
  EXPECT_TRUE(in_cross_replica_context());
  const auto v = on_write(number(1), Aggregation::kNone);
  EXPECT_EQ(v->devices(), std::vector{device_});
  EXPECT_EQ(v->num_replicas(), 1);
}

TEST_F(OneDeviceStrategyTest, RefusesADeviceThatDoesNotExist) {
  EXPECT_TRUE(contains(error_of(Code::kNotFound, [] { OneDeviceStrategy("cpu:7"); }), "cpu:7"));
  error_of(Code::kInvalidArgument, [] { OneDeviceStrategy("disk"); });
}

TEST_F(OneDeviceStrategyTest, CollectivesAreThoseOfOneReplica) {
  const auto step = strategy_->function([](Value x) {
    const ReplicaContext& replica = *get_replica_context();
    EXPECT_EQ(replica.num_replicas_in_sync(), 1);
    return std::vector{replica.all_reduce(ReduceOp::kMean, x), replica.all_gather(x, 0),
                       replica.replica_id_in_sync_group()};
  });
  const auto seen = strategy_->run(step, Tensor::from<float>({1, 2}, {2}));
  EXPECT_EQ(to_doubles(seen[0][0]), (std::vector<double>{1, 2}));
  EXPECT_EQ(to_doubles(seen[1][0]), (std::vector<double>{1, 2}));
  EXPECT_EQ(seen[2][0].item(), 0);
  EXPECT_EQ(strategy_->reduce("sum", seen[0], 0).item(), 3);
}

TEST_F(OneDeviceStrategyTest, TrainsOnWholeBatches) {
  const auto scope = strategy_->scope();
  const auto w = create_variable(
      {.name = "w", .spec = {DType::kFloat32, {}}, .initial_value = [] { return number(1); }});
  const auto optimizer = optim::SGD(0.5);
  const auto step = strategy_->function([&](const BatchValues& batch) {
    EXPECT_EQ(batch.rows(), batch.global_rows());
    const Value x = ops::cast(batch["value"], DType::kFloat32);
    const Value loss = ops::reduce_sum(x * w->read()) / static_cast<double>(batch.global_rows());
    optimizer.minimize(loss, {w});
    return loss;
  });
  std::vector<double> losses;
  for (const auto& batch : strategy_->distribute_dataset(data::range(5).batch(2)))
    losses.push_back(strategy_->reduce("sum", strategy_->run(step, batch)).item());
  // Means of 0, 1; 2, 3; 4, of which half moves the weight.
  EXPECT_EQ(losses, (std::vector<double>{0.5, 0.75 * 2.5, -0.5 * 4}));
  EXPECT_EQ(w->value().item(), -2.5);
}

}  // namespace
}  // namespace cohort
