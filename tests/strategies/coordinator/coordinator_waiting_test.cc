// What a coordinator waits for, and what ends that: errors, a full queue, workers that are busy or
// not there, and interrupts.
#include <csignal>

#include "core/base/program.h"
#include "core/distribute/strategy.h"
#include "tests/strategies/coordinator/testing.h"
#include "tests/testing/gate.h"

namespace cohort::testing {
namespace {

TEST(ClusterCoordinator, TheFirstErrorIsThrownOnceAndAllElseIsStopped) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const Function good = doubled(), bad = failing();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 200; ++i) {
    if (i == 100) values.push_back(coordinator->schedule(bad, 0.0f));
    try {
      values.push_back(coordinator->schedule(good, 1.0f));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::kOutOfRange);
      break;
    }
  }
  try {
    coordinator->join(kPatience);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOutOfRange);
    EXPECT_NE(std::string(error.what()).find("\"failing\" on worker:"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(coordinator->statistics().in_flight, 0u);
  EXPECT_TRUE(coordinator->done()) << "the error has been told";
  int executed = 0, cancelled = 0, failed = 0;
  for (const RemoteValue& value : values) {
    ASSERT_TRUE(value.is_ready());
    const Error error = error_of([&] { value.fetch(); });
    executed += error.message() == "no error";
    cancelled += error.code() == Code::kCancelled;
    failed += error.code() == Code::kOutOfRange;
  }
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(executed + cancelled + failed, static_cast<int>(values.size()));
  EXPECT_EQ(coordinator->schedule(good, 4.0f).get(kPatience).item(), 8);
  coordinator->join(kPatience);
}

TEST(ClusterCoordinator, AnErrorEndsWhatIsBeingComputed) {
  const Function longer = function(
      [](Value x) {
        const Value mean = ops::constant(Tensor::full(DType::kFloat32, {512, 512}, 1.0 / 512));
        Value y = ops::broadcast_to(x, {512, 512});
        for (int i = 0; i < 2000; ++i) y = ops::matmul(y, mean);
        return ops::reduce_sum(y);
      },
      "longer");
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  const RemoteValue value = coordinator->schedule(longer, 1.0f);
  fail_beside(*coordinator, [&] { return functions_known(*coordinator) > 0; });
  EXPECT_ERROR(value.fetch(), Code::kCancelled, "in part");
  EXPECT_EQ(cluster.worker(0).executed() + cluster.worker(1).executed(), 1u) << "doubled()";
}

TEST(ClusterCoordinator, AnErrorEndsAWaitForData) {
  static Gate gate;
  register_behind(gate, "blocked");
  const auto sum = summing();
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto batches = coordinator->create_per_worker_dataset("blocked").iterate();
  coordinator->wait_for_workers();
  const RemoteValue value = coordinator->schedule(sum, batches);
  fail_beside(*coordinator, [] { return gate.holds_somebody(); });
  EXPECT_ERROR(value.fetch(), Code::kCancelled, "in part");
  gate.open();
  EXPECT_EQ(coordinator->schedule(sum, batches).get(kPatience).item(), 1);
}

TEST(ClusterCoordinator, APassThatIsLetGoOfHoldsNobodyUp) {
  static Gate gate;
  register_behind(gate, "let go of");
  const auto sum = summing();
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const OpenInTheEnd guard(gate);
  const auto counted = counter(*coordinator);
  {
    const auto batches = coordinator->create_per_worker_dataset("let go of").iterate();
    coordinator->wait_for_workers();
    const RemoteValue value = coordinator->schedule(sum, batches);
    fail_beside(*coordinator, [] { return gate.holds_somebody(); });
  }
  // The second time, all have been told.
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(coordinator->fetch_per_worker(counted, kPatience).size(), 2u);
  EXPECT_TRUE(gate.holds_somebody()) << "the dataset's function has not returned";
}

// Functions are traced one at a time, and a worker may wait for another one.
TEST(ClusterCoordinator, ABodyCannotWaitForWorkers) {
  static Gate gate;
  register_behind(gate, "behind a body");
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const OpenInTheEnd guard(gate);
  const auto batches = coordinator->create_per_worker_dataset("behind a body").iterate();
  const RemoteValue sum = coordinator->schedule(summing(), batches);
  const Function scaled = function([&](Value x) { return x * sum.get().item(); }, "scaled");
  EXPECT_ERROR(coordinator->schedule(scaled, 3.0f), Code::kFailedPrecondition,
               "cannot wait for workers");
  gate.open();
  EXPECT_EQ(sum.get(kPatience).item(), 1);
  EXPECT_EQ(coordinator->schedule(scaled, 3.0f).get(kPatience).item(), 3) << "it has come";
}

TEST(ClusterCoordinator, AFetchWaitsForAWorkerThatIsBusyUntilAnInterrupt) {
  static Gate gate;
  register_behind(gate, "busy");
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto counted = counter(*coordinator);
  const auto batches = coordinator->create_per_worker_dataset("busy").iterate();
  const auto step = default_strategy().function(
      [counted](const BatchValues& batch) {
        return counted->assign_add(ops::reduce_sum(batch["value"]));
      },
      "step");
  const RemoteValue value = coordinator->schedule(step, batches);
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().in_flight == 1; }));
  EXPECT_ERROR(coordinator->fetch_per_worker(counted, milliseconds(1)), Code::kDeadlineExceeded,
               "the oldest, \"step\"");
  raise(SIGTERM);
  EXPECT_ERROR(coordinator->fetch_per_worker(counted), Code::kCancelled, "interrupted");
  init();  // forgets it
  gate.open();
  EXPECT_EQ(coordinator->fetch_per_worker(counted).size(), 1u);
  EXPECT_EQ(value.get(kPatience).item(), 1);
}

TEST(ClusterCoordinator, SchedulingInALoopHearsOfTheError) {
  for (const size_t max_queued : {size_t{2}, size_t{256 * 1024}}) {
    TestCluster cluster(1);
    const auto coordinator = cluster.coordinator({.max_queued = max_queued});
    const Function good = doubled();
    const Error error = error_of([&] {
      coordinator->schedule(failing(), 0.0f);
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while (std::chrono::steady_clock::now() < end) coordinator->schedule(good, 1.0f);
    });
    EXPECT_EQ(error.code(), Code::kOutOfRange) << error.what();
    EXPECT_TRUE(coordinator->done());
  }
}

TEST(ClusterCoordinator, SchedulingGivesUpAQueueThatStaysFull) {
  static Gate gate;
  register_behind(gate, "endless");
  TestCluster cluster(1);
  const auto coordinator =
      cluster.coordinator({.max_queued = 1, .schedule_timeout = milliseconds(20)});
  const OpenInTheEnd guard(gate);
  const auto batches = coordinator->create_per_worker_dataset("endless").iterate();
  const auto sum = summing("waiting");
  const RemoteValue first = coordinator->schedule(sum, batches);
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().in_flight == 1; }));
  const Function f = doubled();
  const RemoteValue second = coordinator->schedule(f, 2.0f);
  EXPECT_ERROR(coordinator->schedule(f, 3.0f), Code::kDeadlineExceeded, "nothing has been");
  EXPECT_ERROR(coordinator->schedule(f, 3.0f), Code::kDeadlineExceeded,
               "1 closures are queued and 1 in flight; 1 of 1 workers are there; worker:0");
  EXPECT_ERROR(coordinator->schedule(f, 3.0f), Code::kDeadlineExceeded, "\"waiting\"");
  EXPECT_EQ(coordinator->statistics().queued, 1u);
  EXPECT_EQ(coordinator->statistics().scheduling, 0u);
  gate.open();
  coordinator->join(kPatience);
  EXPECT_EQ(first.get().item(), 1);
  EXPECT_EQ(second.get().item(), 4);
  EXPECT_EQ(coordinator->schedule(f, 4.0f).get(kPatience).item(), 8);
  coordinator->join(kPatience);
  EXPECT_EQ(coordinator->statistics().executed, 3u);
  EXPECT_ERROR(cluster.coordinator({.schedule_timeout = milliseconds(-1)}), Code::kInvalidArgument,
               "schedule_timeout is 0 at least");
}

TEST(ClusterCoordinator, AQueueWithoutLimitIsNeverFull) {
  constexpr uint64_t kScheduled = 500;
  TestCluster cluster(1);
  cluster.stop(0);  // else what is scheduled might not wait
  const auto coordinator =
      cluster.coordinator({.max_queued = 0, .schedule_timeout = milliseconds(0)});
  const Function f = doubled();
  for (uint64_t i = 0; i < kScheduled; ++i) coordinator->schedule(f, 1.0f);
  EXPECT_EQ(coordinator->statistics().queued, kScheduled);
  cluster.start(0);
  coordinator->join(kPatience);
  EXPECT_EQ(coordinator->statistics().executed, kScheduled);
}

TEST(ClusterCoordinator, ResultsStayWhenTheirWorkerHasGone) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const RemoteValue value = coordinator->schedule(doubled(), 8.0f);
  coordinator->join(kPatience);
  cluster.stop(0);
  EXPECT_EQ(value.get(kPatience).item(), 16);
}

TEST(ClusterCoordinator, AWorkerThatIsStartedAgainGetsBackWhatItHad) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto counted = counter(*coordinator);
  const auto offset = coordinator->create_per_worker_resource(doubled(), 1.0f);
  const Function f =
      function([counted](Value x, Value y) { return counted->assign_add(x + y); }, "counting");
  EXPECT_EQ(coordinator->schedule(f, offset, 1.0f).get(kPatience).item(), 3);
  cluster.stop(0);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 3; ++i) values.push_back(coordinator->schedule(f, offset, 1.0f));
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().worker_failures == 1; }));
  cluster.start(0);
  coordinator->join(kPatience);
  EXPECT_EQ(values.back().get().item(), 9) << "it starts with its initial value";
  EXPECT_TRUE(cluster.lines.has("is lost"));
  EXPECT_GE(coordinator->statistics().workers, 1);
}

TEST(ClusterCoordinator, WorkersMayComeLater) {
  TestCluster cluster(2);
  cluster.stop(0);
  cluster.stop(1);
  const auto coordinator = cluster.coordinator();
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_ERROR(coordinator->join(milliseconds(50)), Code::kDeadlineExceeded, "1 closures");
  EXPECT_ERROR(coordinator->wait_for_workers(1, milliseconds(10)), Code::kDeadlineExceeded,
               "0 of 1 workers are there; worker:0");
  cluster.start(1);
  EXPECT_EQ(value.get(kPatience).item(), 2);
  coordinator->wait_for_workers(1);
}

TEST(ClusterCoordinator, WaitsForNoMoreWorkersThanThereAre) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers(0);
  for (const int count : {-1, 3})
    EXPECT_ERROR(coordinator->wait_for_workers(count), Code::kInvalidArgument,
                 str("count is ", count, "; allowed: 0 to 2"));
}

TEST(ClusterCoordinator, WithoutAnyWorkerForLongItIsAnError) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator({.worker_timeout = milliseconds(100)});
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kUnavailable, "there is no worker; worker:0");
  EXPECT_ERROR(value.fetch(kPatience), Code::kCancelled, "there is no worker");
}

TEST(ClusterCoordinator, MayWaitForWorkersForEver) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator(
      {.worker_timeout = milliseconds::max(), .stuck_after = milliseconds::max()});
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_ERROR(coordinator->join(milliseconds(200)), Code::kDeadlineExceeded, "1 closures");
  EXPECT_FALSE(cluster.lines.has("nothing has been executed"));
  cluster.start(0);
  EXPECT_EQ(value.get(kPatience).item(), 2);
  EXPECT_ERROR(cluster.coordinator({.worker_timeout = milliseconds(-1)}), Code::kInvalidArgument,
               "worker_timeout is 0 at least, got -1 ms");
  EXPECT_ERROR(cluster.coordinator({.stuck_after = milliseconds(-1)}), Code::kInvalidArgument,
               "stuck_after is 0 at least, got -1 ms");
}

TEST(ClusterCoordinator, SaysWhatDoesNotGoOn) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator({.stuck_after = milliseconds(60)});
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_TRUE(eventually([&] {
    return cluster.lines.has(
        "nothing has been executed for 60 ms; 1 queued, 0 in flight; worker:0");
  }));
  cluster.start(0);
  EXPECT_EQ(value.get(kPatience).item(), 2);
}

TEST(ClusterCoordinator, SigtermEndsItsWaits) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator();
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  raise(SIGTERM);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kCancelled, "interrupted");
  EXPECT_ERROR(coordinator->schedule(doubled(), 1.0f), Code::kCancelled, "interrupted");
  EXPECT_ERROR(value.fetch(kPatience), Code::kCancelled, "interrupted");
  init();  // forgets it
  cluster.start(0);
  EXPECT_EQ(value.get(kPatience).item(), 2);
}

TEST(ClusterCoordinator, ASlowClosureDoesNotHoldUpThoseBehindIt) {
  static Gate gate;
  register_behind(gate, "slow");
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto batches = coordinator->create_per_worker_dataset("slow").iterate();
  const auto waits = summing("waits");
  const Function f = doubled();
  // Until windows are wide, so that some are behind the slow one.
  for (int i = 0; i < 5000; ++i) coordinator->schedule(f, 1.0f);
  coordinator->join(kPatience);
  const RemoteValue slow = coordinator->schedule(waits, batches);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 1000; ++i) values.push_back(coordinator->schedule(f, 1.0f));
  for (const RemoteValue& value : values) EXPECT_EQ(value.get(kPatience).item(), 2);
  EXPECT_FALSE(slow.is_ready());
  gate.open();
  EXPECT_EQ(slow.get(kPatience).item(), 1);
}

}  // namespace
}  // namespace cohort::testing
