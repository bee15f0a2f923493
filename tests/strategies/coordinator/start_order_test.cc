// A chief that schedules, a worker that executes and a parameter server, in whatever order they
// start.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/strategies/coordinator/job.h"
#include "tests/testing/tcp_fault_proxy.h"

namespace cohort::testing {
namespace {

class StartOrder : public ::testing::TestWithParam<int> {
 protected:
  // Returns when the task has come as far as it can without the others.
  void start(const std::string& task) {
    if (task == "ps") {
      server_ = std::make_unique<ParameterServer>(
          Address::parse(server_port_.address()),
          ParameterServerOptions{.job_id = "job", .notice = lines_.writer()}, no_environment);
    } else if (task == "worker") {
      worker_ = std::make_unique<WorkerServer>(
          Address::parse(worker_port_.address()),
          WorkerServerOptions{.job_id = "job", .task = "worker:0", .notice = lines_.writer()},
          no_environment);
    } else {
      counted_ = std::async(std::launch::async, [this] { return count(); });
      EXPECT_TRUE(eventually([this] { return way_to_server_.calls() > 0; }));
    }
  }

 private:
  double count() {
    ParameterServerStrategy strategy(
        {.resolver = resolver_of({{"chief", {"127.0.0.1:1"}},
                                  {"worker", {worker_port_.address()}},
                                  {"ps", {way_to_server_.endpoint().text()}}}),
         .job_id = "job"});
    const auto scope = strategy.scope();
    const auto variable = zero("counted");
    const auto step = strategy.function([&](const Value& x) { return variable->assign_add(x); });
    ClusterCoordinator coordinator(strategy, CoordinatorOptions{.notice = lines_.writer()},
                                   no_environment);
    for (int i = 0; i < 20; ++i) coordinator.schedule(step, 1.0f);
    coordinator.join(kPatience);
    return variable->value().item();
  }

  Lines lines_;
  const launcher::ReservedPort server_port_, worker_port_;
  // Tells that the server was called, also where it is not there.
  TcpFaultProxy way_to_server_{net::InternetAddress::parse(server_port_.address(), "the server")};
  std::unique_ptr<ParameterServer> server_;
  std::unique_ptr<WorkerServer> worker_;

 protected:
  // What 20 functions that add 1 have made of the chief's variable. Last: it uses what is above.
  std::future<double> counted_;
};

TEST_P(StartOrder, OfThreeTasksEndsWithAllTogether) {
  std::vector<std::string> order = {"chief", "ps", "worker"};
  for (int i = 0; i < GetParam(); ++i) std::ranges::next_permutation(order);
  SCOPED_TRACE(::testing::PrintToString(order));
  for (const std::string& task : order) start(task);
  EXPECT_EQ(counted_.get(), 20);
}

INSTANTIATE_TEST_SUITE_P(Orders, StartOrder, ::testing::Range(0, 6));

}  // namespace
}  // namespace cohort::testing
