#include "strategies/replica_threads.h"

#include <atomic>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/testing/error_of.h"

namespace cohort::testing {
namespace {

TEST(ReplicaThreads, AreNotWaitedForInAFork) {
  std::atomic<int> calls = 0;
  const auto count = [&](int) { ++calls; };
  ReplicaThreads threads(2);
  threads.run(count);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const Error error = error_of([&] { threads.run(count); });
    _exit(error.code() == Code::kFailedPrecondition ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  threads.run(count);
  EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace cohort::testing
