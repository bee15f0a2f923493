// What becomes of a program whose strategies end in a job that has failed.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/program.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

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

}  // namespace
}  // namespace cohort::testing
