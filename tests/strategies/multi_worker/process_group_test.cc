// What processes of a group tell each other beside collectives, and groups beside a strategy.
#include "strategies/process_group.h"

#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/program.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Options = MultiWorkerMirroredStrategy::Options;

// Calls `body` for each worker with the options of its strategy: as threads that share a link, and
// as members of a job over each backend.
void on_all_links(int workers, const std::function<void(const Options&)>& body) {
  const auto links = make_in_process_links(workers);
  EXPECT_THAT(on_threads(workers,
                         [&](int rank) {
                           body({.devices = {"cpu:0"}, .link = links[static_cast<size_t>(rank)]});
                         }),
              Each(""));
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    const LocalJob job(workers);
    EXPECT_THAT(
        on_threads(workers,
                   [&](int rank) {
                     body({.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)),
                           .devices = {"cpu:0"},
                           .backend = backend});
                   }),
        Each(""));
  }
}

// Adds up a 1 of each replica in a step, in which worker 1 may fail.
double step_sum(MultiWorkerMirroredStrategy& strategy, bool is_traceable = true) {
  const auto step = strategy.function([&](const Value& x) {
    if (!is_traceable && strategy.workers().rank() == 1)
      fail(Code::kNotFound, "there is no layer \"x\"");
    return get_replica_context()->all_reduce(ReduceOp::kSum, x);
  });
  return strategy.run(step, 1.0f)[0].item();
}

double group_sum(collective::ProcessGroup& group) {
  return collective::all_reduce(group, Tensor::scalar(1.0f)).item();
}

TEST(ProcessGroupTest, HasAStoreForItsProcesses) {
  const LocalJob job(2);
  const auto errors = on_threads(job.size(), [&](int rank) {
    collective::ProcessGroup group(
        {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank))});
    KeyValueStore& store = group.store();
    store.set(str("from ", rank), str("value ", rank));
    EXPECT_EQ(store.get(str("from ", 1 - rank), kPlenty), str("value ", 1 - rank));
    EXPECT_EQ(group_sum(group), 2);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(ProcessGroupTest, OfOneProcessHasAStoreAndBarriersToo) {
  collective::ProcessGroup group(
      {.resolver = std::make_shared<LiteralResolver>(), .limit = milliseconds(1)});
  EXPECT_EQ(group.size(), 1);
  EXPECT_TRUE(group.store().compare_set("key", std::nullopt, "value"));
  EXPECT_EQ(group.store().find("key"), "value");
  for (int times = 0; times < 3; ++times) group.barrier("alone", milliseconds(0));
  EXPECT_EQ(group_sum(group), 1);
}

TEST(ProcessGroupTest, OfOneProcessRefusesABackendThatThereIsNot) {
  setenv("COHORT_COLLECTIVE_BACKEND", "shmem", 1);
  const Error error = error_of([] {
    const collective::ProcessGroup group({.resolver = std::make_shared<LiteralResolver>()});
  });
  unsetenv("COHORT_COLLECTIVE_BACKEND");
  EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("shmem"));
}

TEST(ProcessGroupTest, ALimitBelowAMillisecondIsRefusedBeforeItJoins) {
  const LocalJob job(2);  // in which the other never comes
  for (const int limit : {0, -1}) {
    const Error error = error_of([&] {
      const collective::ProcessGroup group(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(0)),
           .limit = milliseconds(limit)});
    });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    EXPECT_THAT(error.message(), HasSubstr(str("ProcessGroupOptions::limit is ", limit, " ms")));
  }
}

TEST(ProcessGroupTest, ABarrierNamesWhoHasNotComeAndTheGroupGoesOn) {
  on_all_links(2, [](const Options& options) {
    MultiWorkerMirroredStrategy strategy(options);
    collective::ProcessGroup group({.link = strategy.link()});
    const bool is_late = group.rank() == 1;
    if (is_late) {
      EXPECT_EQ(group.store().get("given up", kPlenty), "yes");
    }
    const Error error =
        error_of([&] { group.barrier("epoch", is_late ? kPlenty : milliseconds(100)); });
    EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
    EXPECT_EQ(error.peer(), "worker:1") << error.what();
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("barrier \"epoch\": worker:0 has waited 100 ms for worker:1"),
                      HasSubstr("1 of 2")));
    if (!is_late) group.store().set("given up", "yes");
    group.barrier("epoch", kPlenty);
    EXPECT_EQ(group_sum(group), 2);
    EXPECT_EQ(step_sum(strategy), 2);
  });
}

TEST(ProcessGroupTest, ABarrierNeedsANameThatIsNotTooLong) {
  on_all_links(2, [](const Options& options) {
    MultiWorkerMirroredStrategy strategy(options);
    collective::ProcessGroup group({.link = strategy.link()});
    for (const size_t bytes : {size_t{0}, size_t{257}}) {
      const Error error = error_of([&] { group.barrier(std::string(bytes, 'n'), kPlenty); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(str("a name of ", bytes, " bytes")));
    }
    group.barrier(std::string(256, 'n'), kPlenty);
  });
}

TEST(ProcessGroupTest, WorksBesideAStrategyWhicheverEndsFirst) {
  for (const bool strategy_first : {false, true})
    on_all_links(3, [strategy_first](const Options& options) {
      std::optional<collective::ProcessGroup> group;
      std::optional<MultiWorkerMirroredStrategy> strategy(std::in_place, options);
      group.emplace(collective::ProcessGroupOptions{.link = strategy->link()});
      EXPECT_EQ(group->rank(), strategy->workers().rank());
      for (int times = 0; times < 2; ++times) {
        EXPECT_EQ(step_sum(*strategy), 3);
        EXPECT_EQ(group_sum(*group), 3);
      }
      if (strategy_first) {
        strategy.reset();
        EXPECT_EQ(group_sum(*group), 3);
      } else {
        group.reset();
        EXPECT_EQ(step_sum(*strategy), 3);
      }
    });
}

TEST(ProcessGroupTest, BesideAStrategyOfOneProcessIsAGroupOfOne) {
  MultiWorkerMirroredStrategy strategy(
      {.resolver = std::make_shared<LiteralResolver>(), .devices = {"cpu:0"}});
  collective::ProcessGroup group({.link = strategy.link()}), another({.link = strategy.link()});
  EXPECT_EQ(group_sum(group), 1);
  group.store().set("key", "value");
  EXPECT_EQ(another.store().find("key"), "value") << "of the same job";
}

TEST(ProcessGroupTest, BesideAStrategyLearnsOfTheFailureOfTheJob) {
  std::binary_semaphore known(0);  // until then nobody ends by itself
  on_all_links(2, [&](const Options& options) {
    MultiWorkerMirroredStrategy strategy(options);
    collective::ProcessGroup group({.link = strategy.link()});
    collective::barrier(group);  // nobody is still making its own
    if (group.rank() == 1) {
      strategy.link()->report(Error(Code::kAborted, "enough"));
      return known.acquire();
    }
    const Error error = error_of([&] { collective::barrier(group); });
    known.release();
    EXPECT_EQ(error.code(), Code::kAborted) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("enough"));
  });
}

// As after an error in a step, which all workers get.
TEST(ProcessGroupTest, EndedByAnExceptionLeavesItsStrategyAlone) {
  on_all_links(2, [](const Options& options) {
    MultiWorkerMirroredStrategy strategy(options);
    const Error error = error_of([&] {
      const collective::ProcessGroup group({.link = strategy.link()});
      step_sum(strategy, false);
    });
    EXPECT_EQ(error.code(), Code::kNotFound) << error.what();
    EXPECT_EQ(step_sum(strategy), 2) << "the next step works";
    collective::ProcessGroup group({.link = strategy.link()});
    EXPECT_EQ(group_sum(group), 2);
  });
}

// `UNAVAILABLE` would be a worker that is lost.
TEST(ProcessGroupTest, EndedByAnExceptionOnOneWorkerAloneNamesIt) {
  on_all_links(2, [](const Options& options) {
    MultiWorkerMirroredStrategy strategy(options);
    const bool throws = strategy.workers().rank() == 1;
    const Error error = error_of([&] {
      collective::ProcessGroup group({.link = strategy.link()});
      if (throws) fail(Code::kNotFound, "mine");
      group_sum(group);
    });
    EXPECT_EQ(error.code(), throws ? Code::kNotFound : Code::kAborted) << error.what();
    EXPECT_EQ(error.peer(), throws ? "" : "worker:1") << error.what();
    EXPECT_EQ(step_sum(strategy), 2) << "the strategy goes on";
  });
}

TEST(ProcessGroupTest, ABarrierIsNotTheEndOfAnotherProcess) {
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    const LocalJob job(2);
    const auto errors = on_threads(job.size(), [&](int rank) {
      collective::ProcessGroup group(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)), .backend = backend});
      EXPECT_EQ(group_sum(group), 2);
      if (rank == 1) return;
      const Error error = error_of([&] { collective::barrier(group); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("rank 1 for a barrier for the end of the group"));
    });
    EXPECT_THAT(errors, Each(""));
  }
}

// Whether it hears first that the process has ended or that its connections have.
TEST(ProcessGroupTest, WhoIsInACallHearsWhyAnotherProcessHasEnded) {
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    const LocalJob job(3);
    const auto errors = on_threads(job.size(), [&](int rank) {
      collective::ProcessGroup group(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)), .backend = backend});
      EXPECT_EQ(group_sum(group), 3);
      if (rank == 2) throw std::runtime_error("out of luck");
      const Error error = error_of([&] { group_sum(group); });
      EXPECT_EQ(error.code(), Code::kAborted) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("worker:2 has ended because of an error of its own"));
    });
    EXPECT_THAT(errors, ::testing::ElementsAre("", "", "out of luck"));
  }
}

// The first worker, which is in no part, ends by an error of its own; the second has not come to
// the part in which the third waits.
TEST(ProcessGroupTest, WhoWaitsInAPartLearnsThatTheJobHasFailed) {
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    const LocalJob job(3);
    std::latch heard(1);
    const auto errors = on_threads(job.size(), [&](int rank) {
      collective::ProcessGroup group(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)),
           .backend = backend,
           .limit = kPlenty});
      const auto part = group.communicator().split(rank == 0 ? -1 : 0);
      collective::barrier(group);
      if (rank == 0) throw std::runtime_error("out of luck");
      if (rank == 1) return heard.wait();
      const Error error = error_of([&] { collective::barrier(*part); });
      heard.count_down();
      EXPECT_EQ(error.code(), Code::kAborted) << error.what();
      EXPECT_EQ(error.peer(), "worker:0") << error.what();
    });
    EXPECT_THAT(errors, ::testing::ElementsAre("out of luck", "", ""));
  }
}

// The exit code of a program of two processes, of which the second may end by an error of its own;
// the first calls `call` then.
int exit_code_of(bool fails, CommunicationBackend backend,
                 const std::function<void(collective::ProcessGroup&)>& call) {
  const LocalJob job(2);
  return run_main([&] {
    const auto errors = on_threads(job.size(), [&](int rank) {
      collective::ProcessGroup group(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)), .backend = backend});
      collective::barrier(group);
      if (rank == 0) return call(group);
      if (fails) throw std::runtime_error("out of luck");
    });
    EXPECT_THAT(errors, ::testing::ElementsAre("", fails ? "out of luck" : ""));
  });
}

TEST(ProcessGroupTest, WhatEndsTheJobBeforeAllHaveComeToTheEndIsTheExitCode) {
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    EXPECT_EQ(exit_code_of(false, backend, [](collective::ProcessGroup&) {}), 0);
    EXPECT_EQ(exit_code_of(true, backend, [](collective::ProcessGroup&) {}),
              exit_code(Code::kAborted));
  }
}

// Such a program may join again, or end with a code of its own.
TEST(ProcessGroupTest, WhatACallHasThrownIsLeftToTheProgram) {
  for (const auto backend : {CommunicationBackend::kSharedMemory, CommunicationBackend::kTcp}) {
    EXPECT_EQ(exit_code_of(true, backend,
                           [](collective::ProcessGroup& group) {
                             EXPECT_THROW(collective::all_reduce(group, Tensor::scalar(1.0f)),
                                          Error);
                           }),
              0);
    EXPECT_EQ(exit_code_of(true, backend,
                           [](collective::ProcessGroup& group) {
                             EXPECT_THROW(group.barrier("never", kPlenty), Error);
                           }),
              0);
  }
}

}  // namespace
}  // namespace cohort::testing
