#include "core/distribute/cross_device_ops.h"

#include <cmath>
#include <limits>
#include <random>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "tests/distribute/counting_ops.h"
#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using testing::Counting;
using testing::elements;
using testing::expect_error;
using testing::first_cpus;
using testing::floats;

using Numbers = std::vector<double>;

std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back({DeviceType::kCpu, i});
  return devices;
}

// Each way of combining values, with 1 to 7 replicas.
class CrossDeviceOpsTest : public testing::DevicesTest,
                           public ::testing::WithParamInterface<std::tuple<bool, int>> {
 protected:
  const std::shared_ptr<CrossDeviceOps> ops =
      std::get<0>(GetParam()) ? SharedMemoryAllReduce() : ReductionToOneDevice();
  const int replicas = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Ways, CrossDeviceOpsTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2, 3, 4, 7)));

TEST_P(CrossDeviceOpsTest, ReducesValuesBetweenSteps) {
  std::vector<Tensor> values;
  double sum = 0;
  for (int r = 0; r < replicas; ++r) {
    values.push_back(floats({1.0f + r, 100.0f * r}));
    sum += r;
  }
  EXPECT_EQ(elements(ops->reduce(ReduceOp::kSum, values)), (Numbers{sum + replicas, 100 * sum}));
  EXPECT_FLOAT_EQ(elements(ops->reduce(ReduceOp::kMean, values))[0], (sum + replicas) / replicas);
  const std::vector<Tensor> others(replicas, Tensor::scalar(2.0));
  const auto both = ops->batch_reduce(ReduceOp::kSum, {others, values});
  EXPECT_EQ(both[0].item(), 2 * replicas);
  EXPECT_EQ(elements(both[1]), (Numbers{sum + replicas, 100 * sum}));
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
    expect_error(Code::kInvalidArgument, {std::string(reduce_op_name(op))},
                 [&] { ops->reduce(op, values); });
}

TEST_P(CrossDeviceOpsTest, BroadcastMakesCopies) {
  const Tensor value = floats({1, 2});
  auto copies = ops->broadcast(value, replicas);
  ASSERT_EQ(copies.size(), static_cast<size_t>(replicas));
  for (Tensor& copy : copies) {
    EXPECT_EQ(elements(copy), (Numbers{1, 2}));
    copy.data<float>()[0] = 9;
  }
  EXPECT_EQ(elements(value), (Numbers{1, 2}));
}

// What every replica gets for values from `seed`, reduced in a step.
std::vector<Numbers> reduce_in_step(const std::shared_ptr<CrossDeviceOps>& ops, int replicas,
                                    uint32_t seed) {
  MirroredStrategy strategy({.devices = first_cpus(replicas), .cross_device_ops = ops});
  const auto step = strategy.function([](Value x) {
    const ReplicaContext& replica = *get_replica_context();
    const auto gradient =
        replica.strategy().reduce_gradients({Gradient{.values = x * 3.0}})[0].values;
    return std::vector<Value>{replica.all_reduce(ReduceOp::kSum, x),
                              replica.all_reduce(ReduceOp::kMean, x), gradient,
                              replica.all_gather(x, 0)};
  });
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Tensor> values;
  for (int r = 0; r < replicas; ++r) {
    std::vector<float> part(1000);
    for (float& x : part) x = normal(random);
    values.push_back(floats(part));
  }
  std::vector<Numbers> found;
  for (const auto& result : strategy.run(step, PerReplica<Tensor>(values)))
    for (const Tensor& of_replica : result) found.push_back(elements(of_replica));
  return found;
}

TEST_P(CrossDeviceOpsTest, GivesTheSameNumbersInAStep) {
  for (uint32_t seed = 1; seed <= 3; ++seed)
    EXPECT_EQ(reduce_in_step(ops, replicas, seed), reduce_in_step(nullptr, replicas, seed))
        << "seed " << seed;
}

TEST_P(CrossDeviceOpsTest, TwoStrategiesMayShareOneWay) {
  MirroredStrategy a({.devices = first_cpus(replicas), .cross_device_ops = ops});
  MirroredStrategy b({.devices = first_cpus(2), .cross_device_ops = ops});
  for (Strategy* strategy : {static_cast<Strategy*>(&a), static_cast<Strategy*>(&b)}) {
    const auto step = strategy->function(
        [](Value x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
    EXPECT_EQ(strategy->run(step, 1.0f)[0].item(), strategy->num_replicas_in_sync());
  }
}

// --- A way of one's own

using OwnCrossDeviceOpsTest = testing::DevicesTest;

TEST_F(OwnCrossDeviceOpsTest, IsWhatAStrategyUses) {
  const auto own = std::make_shared<Counting>();
  MirroredStrategy strategy({.devices = first_cpus(3), .cross_device_ops = own});
  EXPECT_EQ(own->groups, 1);
  const auto values = strategy.distribute_values_from_function([](const ValueContext& context) {
    return floats({1.0f * context.replica_id_in_sync_group});
  });
  EXPECT_EQ(strategy.reduce("sum", values).item(), 3);
  EXPECT_EQ(own->reductions, 1);
  EXPECT_EQ(strategy.reduce("mean", values, 0).item(), 1);
  EXPECT_EQ(own->reductions, 3) << "the sum and the count";
  strategy.gather(values, 0);
  EXPECT_EQ(own->gathers, 1);
}

TEST_F(OwnCrossDeviceOpsTest, MakesANewGroupAfterAnError) {
  const auto own = std::make_shared<Counting>();
  MirroredStrategy strategy({.devices = first_cpus(2), .cross_device_ops = own});
  const auto step = strategy.function([](Value table, Value index) {
    return get_replica_context()->all_reduce(ReduceOp::kSum, ops::gather(table, index));
  });
  const auto run = [&](int64_t index) {
    return strategy.run(step, floats({1, 2}), testing::ints({index}))[0].item();
  };
  EXPECT_EQ(run(1), 4);
  EXPECT_EQ(own->groups, 1);
  EXPECT_THROW(run(5), Error);
  EXPECT_EQ(run(0), 2);
  EXPECT_EQ(own->groups, 2);
}

TEST_F(OwnCrossDeviceOpsTest, MustMakeACommunicatorForEachDevice) {
  const auto own = std::make_shared<Counting>();
  own->replicas_missing = true;
  expect_error(Code::kInvalidArgument, {"Counting", "make_communicators", "2", "0"},
               [&] { MirroredStrategy({.devices = first_cpus(2), .cross_device_ops = own}); });
}

// --- The choice

// What is chosen, and what is said about it.
std::pair<std::string, std::string> choose(const std::vector<Device>& devices) {
  ::testing::internal::CaptureStderr();
  const std::string name = select_cross_device_ops(devices)->name();
  return {name, ::testing::internal::GetCapturedStderr()};
}

TEST(SelectCrossDeviceOpsTest, CpusShareMemoryQuietly) {
  for (const int count : {1, 2, 7})
    EXPECT_EQ(choose(cpus(count)),
              (std::pair<std::string, std::string>{"SharedMemoryAllReduce", ""}));
}

TEST(SelectCrossDeviceOpsTest, FallsBackWithAWarning) {
  auto mixed = cpus(2);
  mixed.push_back({DeviceType::kGpu, 0});
  const auto [name, warning] = choose(mixed);
  EXPECT_EQ(name, "ReductionToOneDevice");
  EXPECT_NE(warning.find("several kinds"), std::string::npos) << warning;
  expect_error(Code::kInvalidArgument, {"SharedMemoryAllReduce", "CPU"},
               [&] { SharedMemoryAllReduce()->make_communicators(mixed); });
}

TEST(SelectCrossDeviceOpsTest, NcclAskedForInVainIsSaidOnce) {
  set_logical_cpus(2, 1);
  const MirroredStrategy::Options options{
      .devices = first_cpus(2),
      .communication = {.implementation = CommunicationImplementation::kNccl}};
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) MirroredStrategy strategy(options);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const size_t first = said.find("not by NCCL");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("not by NCCL", first + 1), std::string::npos) << said;
  set_logical_cpus(1);
}

// --- Options

TEST(CommunicationOptionsTest, Validate) {
  EXPECT_NO_THROW(CommunicationOptions{}.validate());
  EXPECT_NO_THROW((CommunicationOptions{.bytes_per_pack = 1, .timeout_seconds = 0.5}.validate()));
  expect_error(Code::kInvalidArgument, {"bytes_per_pack", "-1"},
               [] { CommunicationOptions{.bytes_per_pack = -1}.validate(); });
  for (const double seconds : {0.0, -2.0, std::nan("")})
    expect_error(Code::kInvalidArgument, {"timeout_seconds"},
                 [&] { CommunicationOptions{.timeout_seconds = seconds}.validate(); });
  expect_error(Code::kInvalidArgument, {"bytes_per_pack", "-8"}, [] {
    MirroredStrategy({.devices = {"cpu:0"}, .communication = {.bytes_per_pack = -8}});
  });
}

TEST(CommunicationOptionsTest, ALimitIsInWholeMillisecondsAndInRangeOfTheClock) {
  EXPECT_FALSE(CommunicationOptions{}.limit());
  const auto limit = [](double seconds) {
    return CommunicationOptions{.timeout_seconds = seconds}.limit();
  };
  EXPECT_EQ(limit(0.5), std::chrono::milliseconds(500));
  EXPECT_EQ(limit(1e-9), std::chrono::milliseconds(1));
  for (const double seconds : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    ASSERT_TRUE(limit(seconds));
    EXPECT_GT(*limit(seconds), std::chrono::hours(1000));
    EXPECT_LT(*limit(seconds), std::chrono::nanoseconds::max() / 2);
  }
}

TEST(CommunicationOptionsTest, NamesInAnyCase) {
  for (const char* name : {"auto", "AUTO", "Auto"})
    EXPECT_EQ(communication_implementation_from_name(name), CommunicationImplementation::kAuto);
  EXPECT_EQ(communication_implementation_from_name("RING"), CommunicationImplementation::kRing);
  EXPECT_EQ(communication_implementation_from_name("nccl"), CommunicationImplementation::kNccl);
  expect_error(Code::kInvalidArgument, {"\"tree\"", "auto, ring, nccl"},
               [] { communication_implementation_from_name("tree"); });
}

TEST(CommunicationOptionsTest, DefaultFieldsDoNotOverride) {
  const CommunicationOptions some{.bytes_per_pack = 7,
                                  .implementation = CommunicationImplementation::kRing};
  const auto kept = some.merge({});
  EXPECT_EQ(kept.bytes_per_pack, 7);
  EXPECT_EQ(kept.implementation, CommunicationImplementation::kRing);
  EXPECT_FALSE(kept.timeout_seconds);
  const auto merged = some.merge({.bytes_per_pack = 9, .timeout_seconds = 2});
  EXPECT_EQ(merged.bytes_per_pack, 9);
  EXPECT_EQ(merged.timeout_seconds, 2);
  EXPECT_EQ(merged.implementation, CommunicationImplementation::kRing);
}

}  // namespace
}  // namespace cohort
