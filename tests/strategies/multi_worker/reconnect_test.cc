// After a step that has failed workers connect anew, and none of them waits for one that cannot go
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/multi_worker/changed_link.h"

namespace cohort::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Adds up what all replicas have, in a step that worker 1 may be unable to trace.
double sum(MultiWorkerMirroredStrategy& strategy, bool is_traceable = true) {
  const auto step = strategy.function([&](const Value& x) {
    if (!is_traceable && strategy.workers().rank() == 1)
      fail(Code::kNotFound, "there is no layer \"x\"");
    return get_replica_context()->all_reduce(ReduceOp::kSum, x);
  });
  return strategy.run(step, 1.0f)[0].item();
}

TEST(ReconnectTest, AWorkerThatCannotTraceTheStepAfterAFailureIsWaitedForByNobody) {
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    const LocalJob job(3);
    const auto errors = on_threads(job.size(), [&](int rank) {
      MultiWorkerMirroredStrategy strategy(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)),
           .devices = {"cpu:0"},
           .backend = backend});
      for (int times = 0; times < 3; ++times)
        EXPECT_STREQ(error_of([&] { sum(strategy, false); }).what(),
                     "NOT_FOUND: there is no layer \"x\" (peer worker:1)");
      EXPECT_EQ(sum(strategy), 3) << "the next step works";
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(ReconnectTest, WorkersTellOnceHowTheyAreConnected) {
  using Backend = CommunicationBackend;
  const std::pair<Backend, std::string> cases[] = {
      {Backend::kAuto, "cohort: 3 workers on 1 host are connected by shared memory\n"},
      {Backend::kTcp, "cohort: 3 workers on 1 host are connected by TCP (tcp is asked for)\n"}};
  for (const auto& [backend, line] : cases) {
    const LocalJob job(3);
    ::testing::internal::CaptureStderr();
    const auto errors = on_threads(job.size(), [&, backend = backend](int rank) {
      MultiWorkerMirroredStrategy strategy(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)),
           .devices = {"cpu:0"},
           .backend = backend});
      EXPECT_EQ(error_of([&] { sum(strategy, false); }).code(), Code::kNotFound);
      EXPECT_EQ(sum(strategy), 3) << "they have connected anew";
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(errors, Each(""));
    const size_t at = said.find(line);
    EXPECT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find("are connected by", at + line.size()), std::string::npos) << said;
  }
}

TEST(ReconnectTest, AWorkerThatCannotConnectAgainEndsTheJobForAll) {
  const auto links = make_in_process_links(2);
  const auto errors = on_threads(2, [&](int rank) {
    int connections = 0;
    const auto change = [&](std::unique_ptr<Communicator> inner) {
      if (++connections == 2 && rank == 1)
        fail(Code::kResourceExhausted, "no descriptors are left");
      return inner;
    };
    MultiWorkerMirroredStrategy strategy(
        {.devices = {"cpu:0"},
         .link = std::make_shared<ChangedLink>(links[static_cast<size_t>(rank)], change)});
    EXPECT_EQ(error_of([&] { sum(strategy, false); }).code(), Code::kNotFound);
    for (int times = 0; times < 2; ++times)
      EXPECT_THAT(error_of([&] { sum(strategy); }).what(), HasSubstr("no descriptors are left"));
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace cohort::testing
