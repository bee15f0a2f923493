// Functions over variables that live on parameter servers.
#include "core/optim/optimizers.h"
#include "strategies/parameter_server/push_op.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

TEST(CoordinatorWithServers, WhatFunctionsAddIsAddedOnTheServers) {
  const CountedOnServers counted;
  TestCluster cluster(2, counted.addresses());
  const auto coordinator = cluster.coordinator();
  const Function add = counted.adding();
  for (int i = 0; i < 100; ++i) coordinator->schedule(add, 1.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(counted.value(), 100);
}

TEST(CoordinatorWithServers, GradientsMoveVariablesByTheirRule) {
  const CountedOnServers counted;
  counted.variable()->move_by(optim::SGD(0.5).rule(), 0, {});
  TestCluster cluster(2, counted.addresses());
  const auto coordinator = cluster.coordinator();
  const Function step = function(
      [&](Value x) {
        const Value read = counted.variable()->read();
        parameter_server::add_push(
            counted.variable(), {.learning_rate = ops::constant(0.5, DType::kFloat64),
                                 .values = ops::broadcast_to(x, counted.variable()->spec().shape)});
        return ops::reduce_sum(read);
      },
      "step");
  for (int i = 0; i < 20; ++i) coordinator->schedule(step, -1.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(counted.value(), 10);
  EXPECT_EQ(coordinator->schedule(step, 0.0f).get(kPatience).item(), 100) << "they read it";
}

TEST(CoordinatorWithServers, AServerThatHasGoneIsAnErrorThatNamesIt) {
  const CountedOnServers counted;
  counted.variable()->info();
  const launcher::ReservedPort gone;
  TestCluster cluster(1, {gone.address(), counted.addresses()[1]});
  const auto coordinator = cluster.coordinator();
  coordinator->schedule(counted.adding(), 1.0f);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kUnavailable, gone.address());
  EXPECT_EQ(coordinator->schedule(doubled(), 1.0f).get(kPatience).item(), 2);
}

}  // namespace
}  // namespace cohort::testing
