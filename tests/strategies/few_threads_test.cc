#include "tests/testing/few_threads.h"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/program.h"
#include "core/base/start_threads.h"
#include "core/collective/communicator.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/arrivals.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/http2_guard.h"
#include "strategies/cluster/reachability.h"
#include "strategies/collective/hierarchical/group_end.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "strategies/collective/nccl/operation_watch.h"
#include "strategies/coordinator/remote_worker.h"
#include "strategies/cross_device/time_limit.h"
#include "strategies/parameter_server/task_pool.h"
#include "strategies/parameter_server/update_team.h"
#include "strategies/parameter_server/waiting_room.h"
#include "strategies/replica_threads.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/error_of.h"

// What stands on several threads, in a system that has not so many.
namespace cohort::testing {
namespace {

TEST(TaskPool, IsRefusedWhereThereAreNotSoManyThreads) {
  const FewThreads few;
  const Error error = error_of([] { const parameter_server::TaskPool pool(FewThreads::kTooMany); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(ReplicaThreads, AreRefusedWhereThereAreNotSoMany) {
  const FewThreads few;
  const Error error = error_of([] { const ReplicaThreads threads(FewThreads::kTooMany); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

// All threads that can be started.
class TakenThreads {
 public:
  TakenThreads() {
    threads_.reserve(FewThreads::kTooMany);
    try {
      const auto end = end_.get_future().share();
      while (true) threads_.push_back(start_thread([end] { end.wait(); }));
    } catch (const Error&) {  // that was the last
    }
  }
  ~TakenThreads() {
    end_.set_value();
    for (std::thread& thread : threads_) thread.join();
  }
  TakenThreads(const TakenThreads&) = delete;
  TakenThreads& operator=(const TakenThreads&) = delete;

 private:
  std::promise<void> end_;
  std::vector<std::thread> threads_;
};

// What `make` throws where there is no thread for what it makes.
Error error_without_threads(const std::function<void()>& make) {
  const FewThreads few;
  const TakenThreads none;
  return error_of(make);
}

TEST(GroupEnd, IsRefusedWhereThereIsNoThreadForIt) {
  auto control = std::move(make_in_process_communicators(1)[0]);
  const Error error = error_without_threads(
      [&] { const hierarchical::GroupEnd end(std::move(control), [](const Error&) {}); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(TimeLimit, IsRefusedWhereThereIsNoThreadForIt) {
  auto ranks = make_in_process_communicators(1);
  const Error error = error_without_threads(
      [&] { with_time_limit(std::move(ranks), std::chrono::seconds(1), {"replica 0"}); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(RemoteWorker, IsRefusedWhereThereIsNoThreadForIt) {
  const coordination::Security security({}, true, process_environment);
  coordinator::ClosureQueue queue({});
  coordinator::ResourceTable resources(1);
  coordinator::WorkerContext context{.security = security, .queue = queue, .resources = resources};
  const Address address = Address::of("127.0.0.1", 1);
  const Error error = error_without_threads(
      [&] { const coordinator::RemoteWorker worker(context, 0, "worker:0", address); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(Reachability, IsNotProbedWhereThereIsNoThreadForIt) {
  const std::vector<Address> addresses(2, Address::of("127.0.0.1", 1));
  const Error error = error_without_threads([&] { probe(addresses, std::chrono::seconds(1)); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(OperationWatch, IsRefusedWhereThereIsNoThreadForIt) {
  const Error error =
      error_without_threads([] { const OperationWatch watch(OperationWatch::Options{}); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(Arrivals, AreRefusedWhereThereIsNoThreadForThem) {
  const Error error = error_without_threads(
      [] { const net::Arrivals arrivals([](const net::Descriptor&, char) {}); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(Http2Guard, IsRefusedWhereThereIsNoThreadForIt) {
  const net::Http2Sizes::Limits limits{
      .message_bytes = 1, .messages_bytes = 1, .header_bytes = 1, .usual_bytes = 1};
  const Error error = error_without_threads([&] { const net::Http2Guard guard(limits); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(WaitingRoom, IsRefusedWhereThereIsNoThreadForIt) {
  const Error error = error_without_threads([] { const parameter_server::WaitingRoom room; });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(UpdateTeam, IsRefusedWhereThereIsNoThreadForIt) {
  const Error error = error_without_threads([] { const parameter_server::UpdateTeam team(2); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(SharedMemoryMessages, AreStartedWhereThereIsNoThreadForThem) {
  InMemoryStore store;
  const char sent[] = {'a', 'b'};
  const auto ranks =
      make_shared_memory_communicators(store, {.name = "group", .ranks_per_process = 2});
  const Error error = error_without_threads([&] {
    const int64_t first = ranks[0]->start_send({&sent[0], 1, 1});
    EXPECT_NE(ranks[0]->start_send({&sent[1], 1, 1}), first);
  });
  EXPECT_EQ(error.message(), "no error");
}

// gRPC would wait for ever for those that it does not get.
TEST(Joining, WithoutThreadsForGrpcIsAnErrorAtOnce) {
  const auto lead = [] {
    std::_Exit(run_main([] {
      const LocalJob job(2);
      const FewThreads few(32 << 20);
      join(job.resolver(0));
    }));
  };
  // In a process begun anew, which has no gRPC yet.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lead(), ::testing::ExitedWithCode(18),
              "RESOURCE_EXHAUSTED: .*the threads of gRPC: cannot start thread [0-9]+ of [0-9]+");
}

}  // namespace
}  // namespace cohort::testing
