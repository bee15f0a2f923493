// What becomes of a program whose strategies end in a job that has failed, and when they do.
#include <atomic>
#include <functional>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/program.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Body = std::function<void(MultiWorkerMirroredStrategy&)>;

// The exit code of a program of two workers that run `body`.
int exit_code_of(const Body& body) {
  const auto links = make_in_process_links(2);
  return run_main([&] {
    const auto errors = on_threads(2, [&](int rank) {
      MultiWorkerMirroredStrategy strategy(
          {.devices = {"cpu:0"}, .link = links[static_cast<size_t>(rank)]});
      strategy.workers().exchange("the start", {});
      body(strategy);
    });
    EXPECT_THAT(errors, ::testing::Each(""));
  });
}

void lose_worker_0(const MultiWorkerMirroredStrategy& strategy) {
  strategy.link()->report(Error(Code::kUnavailable, "worker:0 is gone", "worker:0"));
}

TEST(StrategyEndTest, WhatEndsTheJobBeforeAllHaveComeToItIsTheExitCode) {
  EXPECT_EQ(exit_code_of([](MultiWorkerMirroredStrategy&) {}), 0);
  EXPECT_EQ(exit_code_of([](MultiWorkerMirroredStrategy& strategy) {
              if (strategy.workers().rank() == 1) lose_worker_0(strategy);
            }),
            exit_code(Code::kUnavailable));
}

// Such a program may join again, or end with a code of its own.
TEST(StrategyEndTest, WhatACallHasThrownIsLeftToTheProgram) {
  EXPECT_EQ(exit_code_of([](MultiWorkerMirroredStrategy& strategy) {
              if (strategy.workers().rank() == 1) lose_worker_0(strategy);
              const auto call = [&] { strategy.workers().exchange("the rest", {}); };
              EXPECT_EQ(error_of(call).code(), Code::kUnavailable);
            }),
            0);
}

// --- An error that all workers throw together

constexpr int kWorkers = 3, kFinder = 1;
constexpr CommunicationBackend kBackends[] = {CommunicationBackend::kSharedMemory,
                                              CommunicationBackend::kTcp};
const std::string kErrorOfAll = "NOT_FOUND: there is no file \"x\" (peer worker:1)";

void fail_together(const MultiWorkerMirroredStrategy& strategy) {
  Workers& workers = strategy.workers();
  if (workers.rank() == kFinder) workers.fail(Error(Code::kNotFound, "there is no file \"x\""));
  workers.exchange("the file", {});
}

// Lines for people that memberships say, on any thread.
class Lines {
 public:
  MembershipOptions options() {
    return {.notice = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    }};
  }
  const std::vector<std::string>& get() const { return lines_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Runs `body` on workers that have joined a cluster, and `after` when each has ended. What each has
// thrown.
std::vector<std::string> on_cluster(
    CommunicationBackend backend, Lines& lines, const Body& body,
    const std::function<void()>& after = [] {}) {
  struct After {
    const std::function<void()>& call;
    ~After() { call(); }
  };
  const LocalJob job(kWorkers);
  return on_threads(kWorkers, [&](int rank) {
    const After ended{after};
    MultiWorkerMirroredStrategy strategy(
        {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)),
         .devices = {"cpu:0"},
         .membership = lines.options(),
         .backend = backend});
    body(strategy);
  });
}

// Counts when it ends.
struct Ending {
  std::atomic<int>& count;
  ~Ending() { ++count; }
};

// Each several times, for all of them end at once, in whatever order. Nobody has ended before all
// are about to, for a launcher ends the others then.
TEST(ErrorOfAllTest, IsThatOfEachWorkerWhereAllEndWithItAndNobodyCountsAsLost) {
  for (const CommunicationBackend backend : kBackends)
    for (int times = 0; times < 10; ++times) {
      Lines lines;
      ::testing::internal::CaptureStderr();
      std::atomic<int> ending = 0;
      const auto errors = on_cluster(
          backend, lines,
          [&](MultiWorkerMirroredStrategy& strategy) {
            const Ending end{ending};
            fail_together(strategy);
          },
          [&] { EXPECT_EQ(ending, kWorkers); });
      const std::string said = ::testing::internal::GetCapturedStderr();
      EXPECT_THAT(errors, Each(kErrorOfAll));
      EXPECT_THAT(lines.get(), IsEmpty());
      EXPECT_THAT(said, AllOf(Not(HasSubstr("warning")), Not(HasSubstr("last operations"))));
    }
}

// Nobody leaves the job for having waited in vain, which a line would tell of.
TEST(ErrorOfAllTest, EndsTheOthersWhereOneGoesOnWhichHearsOfTheirEndAtItsNextCall) {
  for (int going_on = 0; going_on < kWorkers; ++going_on) {
    Lines lines;
    const auto body = [&](MultiWorkerMirroredStrategy& strategy) {
      if (strategy.workers().rank() != going_on) return fail_together(strategy);
      EXPECT_EQ(error_of([&] { fail_together(strategy); }).what(), kErrorOfAll);
      EXPECT_TRUE(
          eventually([&] { return strategy.link()->failure(milliseconds(0)).has_value(); }));
      for (int times = 0; times < 2; ++times) {
        const Error error = error_of([&] { strategy.workers().exchange("the rest", {}); });
        EXPECT_EQ(error.code(), Code::kAborted);
        EXPECT_THAT(error.message(),
                    HasSubstr("has ended because of the error that all workers have thrown: " +
                              kErrorOfAll));
        EXPECT_THAT(error.peer(), AnyOf("worker:0", "worker:1", "worker:2"));
        EXPECT_NE(error.peer(), strategy.workers().name(going_on));
      }
    };
    const auto errors = on_cluster(kBackends[going_on % 2], lines, body);
    for (int rank = 0; rank < kWorkers; ++rank)
      EXPECT_EQ(errors[static_cast<size_t>(rank)], rank == going_on ? "" : kErrorOfAll);
    EXPECT_THAT(lines.get(), IsEmpty());
  }
}

TEST(ErrorOfAllTest, WhoGoesOnToItsEndHasThatOfTheOthersForItsExitCode) {
  EXPECT_EQ(exit_code_of([](MultiWorkerMirroredStrategy& strategy) {
              const Error error = error_of([&] { fail_together(strategy); });
              EXPECT_EQ(error.what(), kErrorOfAll);
            }),
            0)
      << "all go on";
  const auto links = make_in_process_links(2);
  EXPECT_EQ(run_main([&] {
              const auto errors = on_threads(2, [&](int rank) {
                MultiWorkerMirroredStrategy strategy(
                    {.devices = {"cpu:0"}, .link = links[static_cast<size_t>(rank)]});
                if (rank == kFinder) fail_together(strategy);
                EXPECT_EQ(error_of([&] { fail_together(strategy); }).what(), kErrorOfAll);
              });
              EXPECT_THAT(errors, ::testing::ElementsAre("", kErrorOfAll));
            }),
            exit_code(Code::kAborted));
}

}  // namespace
}  // namespace cohort::testing
