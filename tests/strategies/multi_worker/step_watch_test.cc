// What replicas communicate by ends with the job, whoever has it in hand.
#include "strategies/multi_worker/step_watch.h"

#include <gtest/gtest.h>

#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

const Error kLost(Code::kUnavailable, "worker:1 is gone", "worker:1");

void expect_ended(Communicator& communicator) {
  const Error error = error_of([&] { communicator.barrier(); });
  EXPECT_EQ(error.message(), kLost.message());
  EXPECT_EQ(error.peer(), "worker:1");
}

TEST(StepWatchTest, AnAbortEndsAllThatIsWatchedNowAndLater) {
  const auto watch = std::make_shared<StepWatch>(1, true);
  auto first = make_in_process_communicators(2), second = make_in_process_communicators(2);
  const auto waiting = watch->watch(0, std::move(first[0]));
  watch->watch(0, std::move(make_in_process_communicators(1)[0]));  // one that has gone already
  std::thread failure([&] { watch->abort(kLost); });
  expect_ended(*waiting);  // whether it waits already or not
  failure.join();
  const auto late = watch->watch(0, std::move(second[0]));
  expect_ended(*late);
}

// What one replica writes for all between two Barriers, others wait for.
TEST(StepWatchTest, TimeBetweenTwoBarriersOnEndIsNoComputation) {
  const auto watch = std::make_shared<StepWatch>(1, true);
  const auto alone = watch->watch(0, std::move(make_in_process_communicators(1)[0]));
  const auto waited_in = [&](const std::function<void()>& step) {
    watch->begin_step();
    step();
    return watch->waited();
  };
  const auto compute = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const auto total = [&] { alone->broadcast(nullptr, nullptr, 0, 0); };
  const auto update = [&] {
    alone->barrier();
    compute();
    alone->barrier();
  };
  EXPECT_GE(waited_in(update), std::chrono::milliseconds(2));
  EXPECT_LE(watch->in_collectives(), watch->waited() - std::chrono::milliseconds(2));
  EXPECT_LT(waited_in([&] {
              compute();
              alone->barrier();
              total();
              compute();
              alone->barrier();
            }),
            std::chrono::milliseconds(2));
}

}  // namespace
}  // namespace cohort::testing
