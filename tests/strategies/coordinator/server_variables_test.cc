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

TEST(CoordinatorWithServers, MayBeJoinedAgainAndAgain) {
  const CountedOnServers counted;
  TestCluster cluster(2, counted.addresses());
  const auto coordinator = cluster.coordinator();
  const Function add = counted.adding();
  for (const double total : {10, 20}) {
    for (int i = 0; i < 5; ++i) coordinator->schedule(add, 2.0f);
    coordinator->join(kPatience);
    EXPECT_EQ(counted.value(), total);
    EXPECT_TRUE(coordinator->done());
  }
  coordinator->join(kPatience);
  EXPECT_TRUE(coordinator->done());
}

TEST(CoordinatorWithServers, WorkersReportHowStaleWhatTheyPushIs) {
  const CountedOnServers counted;
  TestCluster cluster(2, counted.addresses());
  const auto coordinator = cluster.coordinator();
  const Function add = counted.adding();
  const auto applied = [&](int functions) {
    for (int i = 0; i < functions; ++i) coordinator->schedule(add, 1.0f);
    coordinator->join(kPatience);
    const StrategyReport report = coordinator->take_report();
    EXPECT_EQ(report.numbers.at("lost_updates"), 0);
    int64_t pushes = 0;
    double sum = 0;
    for (const auto& [staleness, times] : report.histograms.at("staleness")) {
      pushes += times;
      sum += static_cast<double>(staleness * times);
      EXPECT_LE(static_cast<double>(staleness), report.numbers.at("staleness_max"));
    }
    EXPECT_EQ(report.numbers.at("staleness"), sum / static_cast<double>(pushes));
    return pushes;
  };
  EXPECT_EQ(applied(50), 2 * 50) << "of two shards";
  EXPECT_EQ(applied(3), 2 * 3) << "since the last report";
  EXPECT_TRUE(coordinator->take_report().histograms.empty());
}

TEST(CoordinatorWithServers, AnErrorEndsAWaitForAServer) {
  const CountedOnServers counted;
  counted.variable()->info();
  const launcher::ReservedPort gone;
  TestCluster cluster(2, {gone.address(), counted.addresses()[1]});
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  const RemoteValue waiting = coordinator->schedule(counted.adding(), 1.0f);
  fail_beside(*coordinator, [&] { return functions_known(*coordinator) > 0; });
  EXPECT_ERROR(waiting.fetch(), Code::kCancelled, "in part");
  coordinator->schedule(counted.adding(), 1.0f);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kUnavailable, gone.address());
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

TEST(CoordinatorWithServers, WhatAPerWorkerValueAddsIsAddedByEachWorker) {
  const CountedOnServers counted;
  TestCluster cluster(2, counted.addresses());
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  const Function add = counted.adding();
  const auto made = coordinator->create_per_worker_resource(add, 1.0f);
  for (const Tensor& value : coordinator->fetch_per_worker(made, kPatience))
    EXPECT_EQ(value.item(), 2);
  EXPECT_EQ(counted.value(), 2);
  coordinator->schedule(add, 1.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(counted.value(), 3);
}

TEST(CoordinatorWithServers, FunctionsGoOnWithAVariableThatAnOptimizerHasTakenOver) {
  const CountedOnServers counted;
  TestCluster cluster(1, counted.addresses());
  const auto coordinator = cluster.coordinator();
  const Function add = counted.adding();
  coordinator->schedule(add, 1.0f);
  coordinator->join(kPatience);
  counted.variable()->move_by(optim::SGD(0.5).rule(), 0, {});
  coordinator->schedule(add, 1.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(counted.value(), 2) << "in the new shards";
}

TEST(CoordinatorWithServers, APerWorkerValueIsMadeAgainOfWhatAnOptimizerHasTakenOver) {
  const CountedOnServers counted;
  TestCluster cluster(1, counted.addresses());
  const auto coordinator = cluster.coordinator();
  const Function total =
      function([&](Value x) { return ops::reduce_sum(counted.variable()->read()) + x; }, "total");
  const auto made = coordinator->create_per_worker_resource(total, 1.0f);
  EXPECT_EQ(coordinator->schedule(doubled(), made).get(kPatience).item(), 2);
  cluster.stop(0);
  counted.variable()->move_by(optim::SGD(0.5).rule(), 0, {});
  counted.variable()->assign(Tensor::full(DType::kFloat32, {5, 2}, 2));
  cluster.start(0);
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().worker_failures == 1; }));
  EXPECT_EQ(coordinator->schedule(doubled(), made).get(kPatience).item(), 42);
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
