// How a coordinator ends its workers, and what it is after that.
#include <string>
#include <thread>

#include "core/base/program.h"
#include "core/distribute/strategy.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

TEST(ClusterCoordinator, EndsTheWorkersWhenItIsAskedTo) {
  TestCluster cluster(1);
  auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  std::thread worker([&] { cluster.worker(0).wait(); });
  coordinator->shut_down();
  coordinator.reset();  // nothing is left to be sent
  worker.join();
}

TEST(ClusterCoordinator, EndsWorkersThatComeWhenItHasNothingForThem) {
  TestCluster cluster(1);
  cluster.stop(0);
  auto coordinator = cluster.coordinator();
  const PerWorkerDataset dataset = coordinator->create_per_worker_dataset("none");
  std::thread ending([&] {
    coordinator->shut_down();
    coordinator.reset();
  });
  EXPECT_TRUE(eventually(
      [&] { return error_of([&] { dataset.iterate(); }).code() == Code::kFailedPrecondition; }));
  WorkerServer(cluster.address(0),
               {.job_id = "job",
                .orphaned_after = kPatience,
                .unclaimed_after = kPatience,
                .notice = cluster.lines.writer()},
               no_environment)
      .wait();
  ending.join();
  EXPECT_FALSE(cluster.lines.has("there has been no coordinator"));
  EXPECT_FALSE(cluster.lines.has("not asked to end"));
}

TEST(ClusterCoordinator, EndsWorkersThatAreThereAlsoAfterAnInterrupt) {
  TestCluster cluster(3);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  request_stop(StopRequest::kInterrupt);
  coordinator->shut_down();
  init();  // forgets it
  for (const size_t worker : {0, 1, 2}) cluster.worker(worker).wait();
  EXPECT_FALSE(cluster.lines.has("there has been no coordinator"));
  EXPECT_FALSE(cluster.lines.has("not asked to end"));
}

TEST(ClusterCoordinator, GivesNoWorkToWorkersThatItHasEnded) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  const Function f = doubled();
  const PerWorkerDataset dataset = coordinator->create_per_worker_dataset("none");
  const RemoteValue before = coordinator->schedule(f, 3.0f);
  coordinator->join(kPatience);
  coordinator->shut_down();
  const std::string ended = "the coordinator has been shut down";
  EXPECT_ERROR(coordinator->schedule(f, 1.0f), Code::kFailedPrecondition, ended);
  EXPECT_ERROR(coordinator->create_per_worker_resource(f, 1.0f), Code::kFailedPrecondition, ended);
  EXPECT_ERROR(counter(*coordinator), Code::kFailedPrecondition, ended);
  EXPECT_ERROR(dataset.iterate(), Code::kFailedPrecondition, ended);
  EXPECT_NO_THROW(coordinator->join(kPatience)) << "there is nothing to wait for";
  EXPECT_TRUE(coordinator->done());
  EXPECT_EQ(before.get(kPatience).item(), 6);
}

TEST(ClusterCoordinator, SaysWhatWasNeverExecutedAndWhoWasAwayWhenItIsShutDown) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator();
  coordinator->schedule(doubled(), 1.0f);
  request_stop(StopRequest::kInterrupt);  // else it would wait for the worker
  coordinator->shut_down();
  init();  // forgets it
  EXPECT_TRUE(cluster.lines.has("not asked to end: worker:0"));
  EXPECT_ERROR(coordinator->join(kPatience), Code::kFailedPrecondition,
               "something was still queued");
}

}  // namespace
}  // namespace cohort::testing
