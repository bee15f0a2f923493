// A step of replicas of one process that fails is undone, or is the last one: nobody goes on with
// copies that differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "tests/strategies/faulty_communicator.h"
#include "tests/strategies/variables_testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kReplicas = 2, kFaulty = 1, kVariables = 3;

class ReplicaFaultTest : public ::testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  // On all CPUs.
  static std::unique_ptr<Strategy> make_strategy(const std::shared_ptr<CrossDeviceOps>& ops,
                                                 const CommunicationOptions& communication = {}) {
    if (GetParam() == Kind::kCentral)
      return std::make_unique<CentralStorageStrategy>(
          CentralStorageStrategy::Options{.cross_device_ops = ops, .communication = communication});
    return std::make_unique<MirroredStrategy>(
        MirroredStrategy::Options{.cross_device_ops = ops, .communication = communication});
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, ReplicaFaultTest,
                         ::testing::Values(Kind::kMirrored, Kind::kCentral), [](const auto& info) {
                           return std::string(info.param == Kind::kCentral ? "Central"
                                                                           : "Mirrored");
                         });

// Connects replicas of which one has a fault.
class FaultyOps final : public CrossDeviceOps {
 public:
  explicit FaultyOps(const Fault& fault) : fault_(fault) {}
  std::string name() const override { return "FaultyOps"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    auto group = make_in_process_communicators(static_cast<int>(devices.size()));
    group[kFaulty] =
        std::make_unique<FaultyCommunicator>(std::move(group[kFaulty]), fault_, count_);
    return group;
  }

 private:
  const Fault fault_;
  FaultyCommunicator::Count count_;
};

// The fault in the second step of a Training.
std::shared_ptr<CrossDeviceOps> with_fault(Fault fault) {
  fault.bucket += kVariables;
  return std::make_shared<FaultyOps>(fault);
}

constexpr CommunicationOptions kABucketForEach = {.bytes_per_pack = 1};

// Each variable is a bucket.
class Training {
 public:
  explicit Training(std::unique_ptr<Strategy> strategy) : strategy_(std::move(strategy)) {
    const auto scope = strategy_->scope();
    for (int v = 0; v < kVariables; ++v)
      variables_.push_back(create_variable({.name = str("v", v),
                                            .spec = {DType::kFloat32, {}},
                                            .initial_value = [] { return Tensor::scalar(1.0f); }}));
    step_ = strategy_->function([this](const Value& x) {
      Value loss = x * 0.0;
      for (const auto& variable : variables_) loss = loss + variable->read() * x;
      optimizer_.minimize(loss, variables_);
      return loss;
    });
    step();
  }

  void step() { strategy_->run(*step_, 1.0f); }
  std::vector<double> values(int replica) const {
    std::vector<double> values;
    for (const auto& variable : variables_) values.push_back(variable->storage(replica).item());
    return values;
  }

 private:
  const std::unique_ptr<Strategy> strategy_;
  const optim::Optimizer optimizer_ = optim::SGD(0.25);
  std::vector<std::shared_ptr<Variable>> variables_;
  std::optional<StepFunction<Value, const Value&>> step_;
};

TEST_P(ReplicaFaultTest, BetweenBucketsEndsTheStrategyWithTheSameErrorForAllLaterSteps) {
  for (const Fault& fault : {Fault{Fault::kLost, 1}, Fault{Fault::kLost, kVariables - 1}}) {
    Training training(make_strategy(with_fault(fault), kABucketForEach));
    const auto failed = [&] { return error_of(Code::kDeadlineExceeded, [&] { training.step(); }); };
    const std::string first = failed();
    EXPECT_THAT(first, AllOf(HasSubstr("a result does not come"),
                             HasSubstr("had begun to change variables")));
    EXPECT_EQ(failed(), first);
    EXPECT_EQ(failed(), first);
  }
}

TEST_P(ReplicaFaultTest, BeforeAnyResultLeavesVariablesAsTheyWereAndTheNextStepWorks) {
  Training training(make_strategy(with_fault({Fault::kNotStarted, 0}), kABucketForEach));
  const auto before = training.values(0);
  EXPECT_THAT(error_of(Code::kDeadlineExceeded, [&] { training.step(); }),
              HasSubstr("a bucket is not there"));
  for (int r = 0; r < kReplicas; ++r) EXPECT_EQ(training.values(r), before);
  training.step();
  EXPECT_NE(training.values(0), before);
  EXPECT_EQ(training.values(1), training.values(0));
}

// Connects a first time and a third, but not a second.
class ConnectsAgainLate final : public CrossDeviceOps {
 public:
  std::string name() const override { return "ConnectsAgainLate"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    if (++connections_ == 2) fail(Code::kUnavailable, "there is no connection");
    return make_in_process_communicators(static_cast<int>(devices.size()));
  }

 private:
  int connections_ = 0;
};

TEST_P(ReplicaFaultTest, AConnectionThatCannotBeMadeAgainDoesNotHideTheErrorBeforeIt) {
  const auto strategy = make_strategy(std::make_shared<ConnectsAgainLate>());
  const auto step = strategy->function([](const Value& id) {
    return get_replica_context()->all_reduce(
        ReduceOp::kSum, ops::gather(ops::constant(Tensor::from<float>({1, 2}, {2})), id));
  });
  const auto run = [&](int64_t id) { strategy->run(step, id); };
  error_of(Code::kOutOfRange, [&] { run(2); });
  EXPECT_THAT(error_of(Code::kUnavailable, [&] { run(1); }), HasSubstr("there is no connection"));
  run(1);
}

}  // namespace
}  // namespace cohort::testing
