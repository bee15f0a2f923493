#include "strategies/mirrored_strategy.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/kernels/kernel.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizer.h"
#include "strategies/one_device_strategy.h"
#include "tests/distribute/testing.h"
#include "tests/strategies/collective/nccl/leaving_together.h"
#include "tests/testing/error_of.h"

namespace cohort {
namespace {

class MirroredStrategyTest : public testing::MirroredTest {};
INSTANTIATE_TEST_SUITE_P(Replicas, MirroredStrategyTest,
                         ::testing::Values(1, 2, 3, 4, testing::kMaxReplicas));

std::shared_ptr<Variable> make_weights() {
  return create_variable({.name = "w", .spec = {DType::kFloat64, {2}}, .initial_value = [] {
                            return Tensor::from<double>({0.5, -0.25}, {2});
                          }});
}

// Least squares on rows [x0, x1, y]; the rows' total is a feed, so that shares add up to the mean.
Function make_step(const std::shared_ptr<Variable>& w, Strategy& strategy) {
  return function([&strategy, w](Value rows, Value total) {
    const Value weights = w->read();
    const Value x = ops::slice(rows, {0, 0}, {-1, 2}), y = ops::slice(rows, {0, 2}, {-1, 1});
    const Value error = ops::matmul(x, ops::reshape(weights, {2, 1})) - y;
    const Value loss = ops::reduce_sum(error * error) / total;
    const auto gradient = strategy.reduce_gradients(gradients(loss, {weights}));
    w->assign(weights - gradient[0].values * 0.1);
    return loss;
  });
}

std::pair<double, Tensor> train(Strategy& strategy, int64_t rows) {
  const auto scope = strategy.scope();
  const auto w = make_weights();
  const Function step = make_step(w, strategy);
  Tensor batch(DType::kFloat64, {rows, 3});
  for (int64_t i = 0; i < batch.num_elements(); ++i)
    batch.data<double>()[i] = std::sin(static_cast<double>(3 * i));
  auto inputs = strategy.split_batch({batch});
  for (auto& replica : inputs) replica.push_back(Tensor::scalar(static_cast<double>(rows)));
  double loss = 0;
  for (int i = 0; i < 5; ++i) {
    loss = 0;
    for (const auto& outputs : strategy.run(step, inputs)) loss += outputs[0].item();
  }
  for (size_t r = 0; r < strategy.devices().size(); ++r)
    for (int k : {0, 1})
      EXPECT_EQ(w->storage(static_cast<int>(r)).data<double>()[k], w->storage(0).data<double>()[k])
          << "the copy of replica " << r << " went its own way";
  return {loss, w->value()};
}

TEST_P(MirroredStrategyTest, TrainsExactlyLikeOneDeviceForAnyNumberOfRows) {
  for (int64_t rows : {1, 5, 8, 13}) {
    const auto one = OneDeviceStrategy();
    MirroredStrategy mirrored(first_cpus(GetParam()));
    const auto [expected_loss, expected] = train(*one, rows);
    const auto [loss, weights] = train(mirrored, rows);
    EXPECT_NEAR(loss, expected_loss, 1e-12) << rows << " rows";
    for (int k : {0, 1}) EXPECT_NEAR(weights.data<double>()[k], expected.data<double>()[k], 1e-12);
  }
}

TEST_P(MirroredStrategyTest, AnErrorInAReplicaIsThrownAndTheNextRunWorks) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto w = make_weights();
  const auto table = Function([&](const std::vector<Value>& in) {
    const Value picked = ops::gather(w->read(), in[0]);
    return std::vector<Value>{strategy.reduce_gradients({{picked, Value()}})[0].values};
  });
  std::vector<std::vector<Tensor>> good, bad;
  for (int r = 0; r < GetParam(); ++r) {
    good.push_back({Tensor::from<int32_t>({1}, {1})});
    bad.push_back({Tensor::from<int32_t>({r == GetParam() - 1 ? 9 : 1}, {1})});
  }
  for (int round = 0; round < 2; ++round) {
    try {
      strategy.run(table, bad, {.step = 7});
      FAIL() << "an index out of range was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kOutOfRange) << error.what();
      const std::string place = str("on replica ", GetParam() - 1, " in step 7, counted from 0: ");
      EXPECT_EQ(error.message().find(place) != std::string::npos, GetParam() > 1) << error.what();
    }
    for (const auto& outputs : strategy.run(table, good))
      EXPECT_DOUBLE_EQ(outputs[0].item(), -0.25 * GetParam());
  }
}

TEST_F(MirroredStrategyTest, ReplicasThatDisagreeAboutACollectiveGetAnErrorAndDoNotWait) {
  constexpr int kReplicas = 3;
  MirroredStrategy strategy(first_cpus(kReplicas));
  const auto sum = Function([](const std::vector<Value>& in) {
    return ops::all_reduce_async({in[0]}, ReduceOp::kSum, in[1]);
  });
  // Whether each replica takes part, by bits.
  const auto run = [&](int who) {
    std::vector<std::vector<Tensor>> inputs;
    for (int r = 0; r < kReplicas; ++r)
      inputs.push_back({Tensor::scalar(1.0f), Tensor::scalar(((who >> r) & 1) != 0)});
    return strategy.run(sum, inputs);
  };
  for (int who = 1; who < 7; ++who) {
    testing::expect_error(Code::kInvalidArgument, {"must make the same collectives"},
                          [&] { run(who); });
    for (const auto& outputs : run(7)) EXPECT_EQ(outputs[0].item(), kReplicas);
  }
}

// Breaks on a negative number, for a reason that is none of the value's.
void break_on_negative(const KernelCall&, const KernelContext& context) {
  const auto number = *static_cast<const int32_t*>(context.inputs[0]);
  if (number < 0) fail(Code::kInternal, "broken");
  *static_cast<int32_t*>(context.outputs[0]) = number;
}

COHORT_REGISTER_OP({.name = "TestBreakOnNegative",
                    .num_inputs = 1,
                    .infer = [](const InferenceContext& c) { return c.inputs; },
                    .gradient = no_gradient});
COHORT_REGISTER_KERNEL("TestBreakOnNegative", kCpu, stateless_kernel(break_on_negative));

TEST_F(MirroredStrategyTest, WhatItsReplicasDidLastIsShownWhenOneFailsButNotForAValue) {
  const std::string file = ::testing::TempDir() + "/mirrored";
  const auto shown_after = [&](int32_t wrong) {
    setenv("COHORT_FLIGHT_RECORDER_FILE", file.c_str(), 1);
    {
      MirroredStrategy strategy(first_cpus(2));
      const auto scope = strategy.scope();
      const auto w = make_weights();
      const auto row = [](int32_t number) { return Tensor::from<int32_t>({number}, {1}); };
      const auto table = Function([&](const std::vector<Value>& in) {
        const Value rows = in[0].graph().add("TestBreakOnNegative", {in[0]}).output();
        const Value picked = ops::gather(w->read(), rows);
        return std::vector<Value>{strategy.reduce_gradients({{picked, Value()}})[0].values};
      });
      strategy.run(table, {{row(1)}, {row(0)}});
      EXPECT_FALSE(std::filesystem::exists(file + ".rank0"));
      EXPECT_THROW(strategy.run(table, {{row(1)}, {row(wrong)}}), Error);
    }
    unsetenv("COHORT_FLIGHT_RECORDER_FILE");
    std::stringstream text;
    text << std::ifstream(file + ".rank0").rdbuf();
    std::filesystem::remove(file + ".rank0");
    return text.str();
  };
  EXPECT_EQ(shown_after(9), "") << "beyond the table";
  const std::string text = shown_after(-1);
  for (const char* rank : {"\n  rank 0 has begun ", "\n  rank 1 has begun "})
    EXPECT_THAT(text, ::testing::HasSubstr(rank));
  EXPECT_THAT(text, ::testing::ContainsRegex("AllReduce +float64 +8 bytes  done in"));
}

class LeavingTogetherOps final : public CrossDeviceOps {
 public:
  explicit LeavingTogetherOps(testing::Departure& departure) : departure_(departure) {}
  std::string name() const override { return "LeavingTogetherOps"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    return testing::make_leaving_together(static_cast<int>(devices.size()), departure_);
  }

 private:
  testing::Departure& departure_;
};

TEST_F(MirroredStrategyTest, ItsReplicasLeaveTheirGroupTogether) {
  constexpr int kReplicas = 3;
  testing::Departure departure(kReplicas);
  auto options = first_cpus(kReplicas);
  options.cross_device_ops = std::make_shared<LeavingTogetherOps>(departure);
  { const MirroredStrategy strategy(options); }
  EXPECT_TRUE(departure.was_together());
}

TEST_F(MirroredStrategyTest, RefusesADeviceGivenTwiceOrAbsent) {
  EXPECT_THROW(MirroredStrategy({.devices = {"cpu:0", "cpu:0"}}), Error);
  const Error absent = testing::error_of([] {
    MirroredStrategy({.devices = {"cpu:0", "cpu:99"}});
  });
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_NE(absent.message().find("cpu:99"), std::string::npos);
}

TEST_F(MirroredStrategyTest, VariablesReadInReplicasMergeOutside) {
  MirroredStrategy strategy(first_cpus(3));
  const auto scope = strategy.scope();
  const auto make = [](Aggregation aggregation) {
    return create_variable({.spec = {DType::kFloat32, {}},
                            .initial_value = [] { return Tensor::scalar(0.0f); },
                            .trainable = false,
                            .synchronization = Synchronization::kOnRead,
                            .aggregation = aggregation});
  };
  const auto sum = make(Aggregation::kSum), mean = make(Aggregation::kMean),
             none = make(Aggregation::kNone);
  const auto step = function([&](Value x) {
    sum->assign(sum->read() + x);
    mean->assign(x);
    none->assign(x);
    return x;
  });
  std::vector<std::vector<Tensor>> inputs;
  for (float x : {1.f, 2.f, 6.f}) inputs.push_back({Tensor::scalar(x)});
  strategy.run(step, inputs);
  strategy.run(step, inputs);
  EXPECT_EQ(sum->value().item(), 18);
  EXPECT_EQ(mean->value().item(), 3);
  EXPECT_THROW(none->value(), Error);
  sum->assign(Tensor::scalar(9.0f));
  EXPECT_EQ(sum->value().item(), 9);
  EXPECT_EQ(sum->storage(1).item(), 3);
}

TEST_F(MirroredStrategyTest, WhatCopiesMakeHasAGradientWhereNoStrategyRunsTheFunction) {
  MirroredStrategy strategy(first_cpus(2));
  const auto scope = strategy.scope();
  const auto mean = create_variable({.spec = {DType::kFloat32, {}},
                                     .initial_value = [] { return Tensor::scalar(4.0f); },
                                     .synchronization = Synchronization::kOnRead,
                                     .aggregation = Aggregation::kMean});
  const auto slope = function([&] {
    const Value read = mean->read();
    return optim::gradients(read * read, {mean})[0].dense();
  });
  EXPECT_EQ(slope(std::vector<Tensor>())[0].item(), 8);
}

}  // namespace
}  // namespace cohort
