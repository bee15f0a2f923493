#include <chrono>
#include <future>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "strategies/collective/host/shared_meeting.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "tests/strategies/collective/directory_store.h"
#include "tests/strategies/collective/processes.h"

namespace cohort::testing {
namespace {

void expect_success(const Processes::Options& options) {
  Processes group(options);
  for (int p = 0; p < options.processes; ++p)
    EXPECT_EQ(group.wait(p), 0) << options.scenario << " with " << options.processes << " x "
                                << options.ranks_per_process << ":\n"
                                << group.output(p);
}

TEST(SharedMemoryTest, AllCallsOfProcesses) {
  for (const int processes : {1, 2, 3, 8}) expect_success({"calls", processes});
}

TEST(SharedMemoryTest, AllCallsOfThreads) { expect_success({"calls", 1, 3}); }

TEST(SharedMemoryTest, AllCallsOfThreadsInSeveralProcesses) { expect_success({"calls", 2, 2}); }

TEST(SharedMemoryTest, Messages) {
  expect_success({"messages", 2});
  expect_success({"messages", 4});
  expect_success({"messages", 2, 2});
}

TEST(SharedMemoryTest, Parts) {
  expect_success({"split", 1});
  expect_success({"split", 4});
  expect_success({"split", 3, 2});
}

TEST(SharedMemoryTest, Background) {
  expect_success({"background", 3});
  expect_success({"background", 2, 2});
}

TEST(SharedMemoryTest, MemoryComesAndGoes) {
  expect_success({"replace", 3});
  expect_success({"replace", 2, 2});
}

TEST(SharedMemoryTest, ADeadProcessIsNamedAtOnce) {
  for (const int ranks : {1, 2}) {
    Processes group({"wait", 3, ranks});
    group.await_output(0, "ready");
    const pid_t victim = group.pid(2);
    kill(victim, SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(group.wait(2), -1);
    for (const int p : {0, 1}) {
      EXPECT_EQ(group.wait(p), 0) << group.output(p);
      EXPECT_NE(group.output(p).find("UNAVAILABLE: rank " + std::to_string(2 * ranks) + " (pid " +
                                     std::to_string(victim) + ") has ended"),
                std::string::npos)
          << group.output(p);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

TEST(SharedMemoryTest, AStoppedProcessIsNamedAfterTheLimit) {
  Processes group({"wait", 3, 1, 500});
  group.await_output(0, "ready");
  const pid_t victim = group.pid(2);
  kill(victim, SIGSTOP);
  for (const int p : {0, 1}) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    EXPECT_NE(group.output(p).find("DEADLINE_EXCEEDED: an all-reduce (sum) of 1 float32 tensors"),
              std::string::npos)
        << group.output(p);
    EXPECT_NE(group.output(p).find("rank 2 (pid " + std::to_string(victim) + ")"),
              std::string::npos)
        << group.output(p);
  }
  // It learns of it when it goes on.
  kill(victim, SIGCONT);
  EXPECT_EQ(group.wait(2), 0) << group.output(2);
}

// One that was let go could free what the other one, which is only slow, still writes to.
TEST(SharedMemoryTest, ATimeLimitLetsNoThreadOfAProcessGoWhileOthersUseItsMemory) {
  constexpr std::chrono::milliseconds kNoPatience{0};
  const ControlBlock control = ControlBlock::create(2);
  const HostPeers peers{.pids = {getpid(), getpid()}, .tasks = {"", ""}, .processes = {}};
  const StallWarning stall{};
  SharedMeeting quick(control, peers, 0, 2, kNoPatience, stall);
  SharedMeeting slow(control, peers, 1, 2, kNoPatience, stall);
  const auto waiting = [] { return std::string("an all-reduce"); };
  auto finished = std::async(std::launch::async, [&] { quick.part(waiting); });
  while (control.meeting().sleepers == 0 &&
         finished.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    std::this_thread::yield();
  EXPECT_NO_THROW(slow.part(waiting));
  EXPECT_NO_THROW(finished.get());
}

// The last process of three stops itself in `scenario`, and an abort frees the others.
void expect_freed_from_stopped(const std::string& scenario) {
  Processes group({scenario, 3});
  for (const int p : {0, 1}) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    EXPECT_NE(group.output(p).find("UNAVAILABLE: the last rank is stopped"), std::string::npos)
        << group.output(p);
  }
  kill(group.pid(2), SIGCONT);
  EXPECT_EQ(group.wait(2), 0) << group.output(2);
}

// Who is stopped while others may use its memory does not keep them for ever.
TEST(SharedMemoryTest, AnAbortFreesThoseThatWaitWithinACallForAStoppedProcess) {
  expect_freed_from_stopped("stop");
}

TEST(SharedMemoryTest, WhoGoesOnAfterItsCallHasFailedWritesIntoNobodysMemory) {
  Processes group({"stop for a while", 3});
  for (const int p : {0, 1, 2}) EXPECT_EQ(group.wait(p), 0) << group.output(p);
}

TEST(SharedMemoryTest, AFailureHarmsNoOtherGroupWhoseTargetsShareItsPages) {
  Processes group({"stop beside", 3});
  for (const int p : {0, 1, 2}) EXPECT_EQ(group.wait(p), 0) << group.output(p);
}

// A stopped process has not ended: nothing but the abort of the whole frees those in a part of it.
TEST(SharedMemoryTest, AnAbortFreesThoseThatWaitInAPartForAStoppedProcess) {
  expect_freed_from_stopped("stop in part");
}

TEST(SharedMemoryTest, AnAbortReachesAllWithItsError) {
  Processes group({"abort", 3, 2});
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    EXPECT_NE(group.output(p).find("CANCELLED: enough (peer the user)"), std::string::npos)
        << group.output(p);
  }
}

TEST(SharedMemoryTest, DifferentCallsAreRefusedOnAllRanks) {
  Processes group({"mismatch", 3});
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    for (const std::string part :
         {"INVALID_ARGUMENT: the ranks of a group must make the same calls",
          " rank 0 asks for an all-reduce (sum) of 1 float32 tensors with 8 elements and "
          "rank 1 for an all-reduce (sum) of 1 float32 tensors with 7 elements"})
      EXPECT_NE(group.output(p).find(part), std::string::npos) << group.output(p);
  }
}

}  // namespace
}  // namespace cohort::testing
