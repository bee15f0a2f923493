// The coordinator of a cluster without a chief: worker:0, which executes as well as schedules.
#include <thread>

#include "strategies/coordinator/scheduler.h"
#include "tests/strategies/coordinator/job.h"

namespace cohort::testing {
namespace {

TEST(Scheduler, IsWhoLeadsTheWorkers) {
  const auto scheduler = [](const char* cluster) {
    return coordinator::scheduler_of(ClusterSpec::from_json(cluster));
  };
  EXPECT_EQ(scheduler(R"({"chief": ["a:1"], "worker": ["b:1"]})"), "chief:0");
  EXPECT_EQ(scheduler(R"({"worker": ["b:1", "c:1"]})"), "worker:0");
  EXPECT_ERROR(scheduler(R"({"worker": {"1": "b:1"}})"), Code::kFailedPrecondition, "has neither");
}

// Two workers and two parameter servers. worker:1 is here; worker:0 is whoever coordinates.
class WithoutAChief : public ::testing::Test {
 protected:
  WithoutAChief() { start_other(); }

  void start_other() {
    other_ = std::make_unique<WorkerServer>(Address::parse(ports_[1].address()),
                                            WorkerServerOptions{.job_id = "job",
                                                                .task = "worker:1",
                                                                .coordinator = "worker:0",
                                                                .notice = lines_.writer()},
                                            no_environment);
  }
  std::unique_ptr<ParameterServerStrategy> strategy(int index = 0) const {
    return std::make_unique<ParameterServerStrategy>(Options{
        .resolver =
            resolver_of({{"worker", {ports_[0].address(), ports_[1].address()}},
                         {"ps", {servers_[0].address().text(), servers_[1].address().text()}}},
                        "worker", index),
        .job_id = "job"});
  }
  std::unique_ptr<ClusterCoordinator> coordinator(Strategy& strategy) {
    return std::make_unique<ClusterCoordinator>(
        strategy, CoordinatorOptions{.notice = lines_.writer()}, no_environment);
  }
  static std::shared_ptr<Variable> counted(Strategy& strategy) {
    const auto scope = strategy.scope();
    return zero("counted");
  }
  static uint64_t executed_by(ClusterCoordinator& coordinator, size_t worker) {
    return coordinator.worker_statuses()[worker].executed;
  }

  Lines lines_;
  TestServer servers_[2];
  const launcher::ReservedPort ports_[2];
  std::unique_ptr<WorkerServer> other_;
};

// It calls the servers itself, too, between what it executes: neither takes the other for a start
// of itself, and each counts its own pushes.
TEST_F(WithoutAChief, Worker0SchedulesAndBothExecute) {
  const auto strategy = this->strategy();
  const auto variable = counted(*strategy);
  const auto step = strategy->function([&](const Value& x) { return variable->assign_add(x); });
  const auto coordinator = this->coordinator(*strategy);
  coordinator->wait_for_workers();
  double expected = 0;
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 20; ++i) coordinator->schedule(step, 1.0f);
    variable->assign_add(Tensor::scalar(100.0f));
    coordinator->join(kPatience);
    expected += 120;
    return executed_by(*coordinator, 0) > 0 && executed_by(*coordinator, 1) > 0;
  }));
  EXPECT_EQ(variable->value().item(), expected);
  EXPECT_EQ(coordinator->statistics().worker_failures, 0u);
}

TEST_F(WithoutAChief, Worker0GoesOnWithoutTheOthers) {
  const auto strategy = this->strategy();
  const auto variable = counted(*strategy);
  const auto step = strategy->function([&](const Value& x) { return variable->assign_add(x); });
  const auto coordinator = this->coordinator(*strategy);
  coordinator->wait_for_workers();
  other_.reset();
  for (int i = 0; i < 20; ++i) coordinator->schedule(step, 1.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(variable->value().item(), 20);
  start_other();
  coordinator->wait_for_workers();
}

TEST_F(WithoutAChief, ShuttingDownEndsBothWorkersAndTheStrategyStays) {
  const auto strategy = this->strategy();
  const auto variable = counted(*strategy);
  const auto coordinator = this->coordinator(*strategy);
  coordinator->wait_for_workers();
  std::thread ending([&] {
    other_->wait();
    other_.reset();
  });
  coordinator->shut_down();
  ending.join();
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().workers == 0; }));
  EXPECT_EQ(coordinator->statistics().worker_failures, 0u);
  variable->assign(Tensor::scalar(3.0f));
  EXPECT_EQ(variable->value().item(), 3);
}

// Else a server that is asked to stop then would be started again.
TEST_F(WithoutAChief, AServerIsDoneWhenBothWorkersHaveEnded) {
  TestServer* server = nullptr;
  {
    const auto strategy = this->strategy();
    const auto variable = counted(*strategy);
    server = &servers_[dynamic_cast<ServerVariable&>(*variable).first_server()];
    const auto step = strategy->function([&](const Value& x) { return variable->assign_add(x); });
    const auto coordinator = this->coordinator(*strategy);
    coordinator->wait_for_workers();
    EXPECT_TRUE(eventually([&] {
      for (int i = 0; i < 20; ++i) coordinator->schedule(step, 1.0f);
      coordinator->join(kPatience);
      return executed_by(*coordinator, 0) > 0 && executed_by(*coordinator, 1) > 0;
    }));
    std::thread ending([&] {
      other_->wait();
      other_.reset();
    });
    coordinator->shut_down();
    ending.join();
    EXPECT_FALSE((*server)->is_done()) << "worker:0 may go on";
  }
  EXPECT_TRUE((*server)->is_done());
}

TEST_F(WithoutAChief, TheStrategyEndsTheServers) {
  const auto strategy = this->strategy();
  std::vector<std::thread> serving;
  for (TestServer& server : servers_) serving.emplace_back([&server] { server->wait(); });
  EXPECT_ERROR(this->strategy(1)->shut_down_servers(), Code::kPermissionDenied, "worker:1");
  strategy->shut_down_servers();
  for (std::thread& server : serving) server.join();
}

TEST_F(WithoutAChief, ALaterCoordinatorTakesThePlaceOfTheFirst) {
  const auto strategy = this->strategy();
  for (const float x : {1.0f, 2.0f}) {
    const auto coordinator = this->coordinator(*strategy);
    coordinator->wait_for_workers();
    EXPECT_EQ(coordinator->schedule(doubled(), x).get(kPatience).item(), 2 * x);
  }
}

TEST_F(WithoutAChief, OnlyWorker0Schedules) {
  const auto strategy = this->strategy(1);
  EXPECT_ERROR(coordinator(*strategy), Code::kInvalidArgument,
               "for the task worker:0, and this is worker:1, which executes");
  ParameterServerStrategy alone({.resolver = std::make_shared<LiteralResolver>()});
  EXPECT_ERROR(coordinator(alone), Code::kInvalidArgument, "a program on its own");
  const ClusterCoordinator chief(ClusterSpec(ClusterSpec::Jobs{{"worker", {ports_[1].address()}}}),
                                 {.job_id = "job", .notice = lines_.writer()}, no_environment);
  EXPECT_TRUE(eventually([&] { return other_->refused() > 0; })) << "it is chief:0";
}

}  // namespace
}  // namespace cohort::testing
