// The queue and its rule for errors, with threads of the test as workers.
#include "strategies/coordinator/closure_queue.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/base/program.h"
#include "core/base/random.h"
#include "tests/strategies/coordinator/closure_queue_fixture.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

TEST_F(Queue, IsDoneAtFirstAndAfterAllHasBeenExecuted) {
  EXPECT_TRUE(queue_.done());
  join();
  put();
  EXPECT_FALSE(queue_.done());
  auto taken = take();
  EXPECT_FALSE(queue_.done()) << "it is in flight";
  queue_.finish(taken);
  EXPECT_TRUE(queue_.done());
  join();
}

TEST_F(Queue, HandsOutTheFirstAndAsManyBytesAsAreWanted) {
  for (const size_t bytes : {50u, 3u, 4u, 4u, 1u}) {
    ClosurePtr made = closure();
    made->bytes = bytes;
    queue_.put(std::move(made));
  }
  for (const size_t expected : {1u, 2u, 2u}) {
    auto taken = queue_.take(100, 7, std::chrono::steady_clock::now(), never_, {});
    EXPECT_EQ(taken.size(), expected);
    queue_.finish(taken);
  }
  EXPECT_TRUE(queue_.done());
}

TEST_F(Queue, JoinSaysWhatItWaitedFor) {
  put();
  EXPECT_ERROR(queue_.join(milliseconds(1)), Code::kDeadlineExceeded,
               "1 closures are queued and 0 in flight; worker:1: at it");
  EXPECT_FALSE(queue_.done());
}

TEST_F(Queue, PutAfterAFailureRaisesTheFirstErrorOnceAndIsCleanThen) {
  put_many(2);
  const RemoteValue waiting = put();
  ClosurePtr first = take_one(), second = take_one();
  queue_.fail(std::move(first), Error(Code::kInvalidArgument, "the first"));
  queue_.fail(std::move(second), Error(Code::kInternal, "the second"));
  EXPECT_TRUE(take_what_is_there().empty()) << "nothing is handed out after an error";
  EXPECT_ERROR(put(), Code::kInvalidArgument, "the first");
  EXPECT_TRUE(cancelled_);
  EXPECT_ERROR(waiting.fetch(), Code::kCancelled, "schedule it again");
  EXPECT_TRUE(queue_.done());
  put();
  finish_last();
}

TEST_F(Queue, RaisesWhenNothingIsInFlightAnyMore) {
  put();
  const RemoteValue other = put();
  ClosurePtr slow = fail_beside_another();
  std::atomic<bool> raised = false;
  std::thread joining([&] {
    expect_join_fails();
    raised = true;
  });
  EXPECT_TRUE(eventually([&] { return cancelled_.load(); }));
  EXPECT_FALSE(raised);
  queue_.put_back(list(std::move(slow)), PutBack::kReturned);
  joining.join();
  EXPECT_ERROR(other.fetch(), Code::kCancelled, "bad");
  EXPECT_EQ(queue_.counts().cancelled, 1u);
}

TEST_F(Queue, JoinKeepsItsTimeLimitWhereSomethingDoesNotStopForAnError) {
  put_many(2);
  ClosurePtr stuck = fail_beside_another();
  const auto join_shortly = [&] { queue_.join(milliseconds(20)); };
  EXPECT_ERROR(join_shortly(), Code::kDeadlineExceeded,
               "1 in flight, and do not stop for the error");
  EXPECT_ERROR(join_shortly(), Code::kDeadlineExceeded, "(bad); worker:1: at it");
  EXPECT_TRUE(cancelled_);
  std::thread joining([&] { EXPECT_ERROR(join(), Code::kInternal, "bad"); });
  EXPECT_ERROR(join_shortly(), Code::kDeadlineExceeded, "1 in flight");
  queue_.finish(list(std::move(stuck)));
  joining.join();
  join();
}

class ImpatientQueue : public Queue {
 protected:
  ImpatientQueue() : Queue(16, milliseconds(20)) {}
};

TEST_F(ImpatientQueue, NoWaitForWhatDoesNotStopForAnErrorIsWithoutEnd) {
  put();
  const RemoteValue other = put();
  ClosurePtr stuck = fail_beside_another();
  const std::string why =
      "0 closures are queued and 1 in flight, and do not stop for the error of another (bad); "
      "worker:1: at it";
  EXPECT_ERROR(queue_.done(), Code::kDeadlineExceeded, why);
  EXPECT_ERROR(put(), Code::kDeadlineExceeded, why);
  EXPECT_ERROR(queue_.join({}), Code::kDeadlineExceeded, why);
  EXPECT_ERROR(join(), Code::kDeadlineExceeded, why);
  EXPECT_FALSE(other.is_ready());
  queue_.put_back(list(std::move(stuck)), PutBack::kLost);
  EXPECT_ERROR(queue_.done(), Code::kInternal, "bad");
  EXPECT_ERROR(other.fetch(), Code::kCancelled, "bad");
  EXPECT_TRUE(queue_.done());
}

TEST_F(Queue, ATimeLimitBeyondTheClockIsNone) {
  put();
  std::thread finishing([&] { queue_.finish(take()); });
  queue_.join(milliseconds::max());
  finishing.join();
}

TEST_F(Queue, AnInterruptEndsAllWaitsAndLeavesTheErrorForLater) {
  put_many(2);
  ClosurePtr stuck = fail_beside_another();
  std::thread asking([&] { EXPECT_ERROR(queue_.done(), Code::kCancelled, "interrupted"); });
  EXPECT_TRUE(eventually([&] { return cancelled_.load(); })) << "it waits from then on";
  request_stop(StopRequest::kInterrupt);
  asking.join();
  EXPECT_ERROR(join(), Code::kCancelled, "interrupted");
  EXPECT_ERROR(put(), Code::kCancelled, "interrupted");
  init();  // forgets it
  EXPECT_EQ(queue_.counts().in_flight, 1u);
  queue_.finish(list(std::move(stuck)));
  expect_join_fails();
  request_stop(StopRequest::kInterrupt);  // also where nothing waits
  EXPECT_ERROR(queue_.done(), Code::kCancelled, "interrupted");
  init();
}

// An error is thrown by one of four threads, and leaves something that is executed again.
TEST_F(Queue, WhoIsNotToldOfAnErrorStillWaitsForAll) {
  put_many(3);
  auto held = hold(take());
  ClosurePtr bad = take_one(), slow = take_one();
  queue_.execute_again(std::move(held));
  std::atomic<int> told = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      if (error_of([&] { join(); }).code() == Code::kInternal) ++told;
    });
  EXPECT_TRUE(eventually([&] { return queue_.counts().joining == 4; }));
  fail(std::move(bad));
  EXPECT_TRUE(eventually([&] { return queue_.counts().joining == 0; }))
      << "all have seen the error";
  queue_.finish(list(std::move(slow)));
  EXPECT_TRUE(eventually([&] { return told == 1 && queue_.counts().joining == 3; }));
  queue_.finish(take());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
}

TEST_F(Queue, WhatIsPutBackComesFirstAndInOrder) {
  put_many(4);
  auto taken = take(3);
  ASSERT_EQ(taken.size(), 3u);
  const uint64_t lane = taken[0]->lane, sequence = taken[0]->lane_sequence;
  queue_.put_back(std::move(taken), PutBack::kLost);
  taken = take(4);
  ASSERT_EQ(taken.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(taken[i]->number, i + 1);
  EXPECT_EQ(taken[0]->lane, lane);
  EXPECT_EQ(taken[0]->lane_sequence, sequence);
  EXPECT_EQ(queue_.counts().retried, 3u);
}

TEST_F(Queue, ALaneHasOneClosureAtATimeWithGrowingNumbers) {
  put_many(3);
  ClosurePtr a = take_one(), b = take_one();
  EXPECT_NE(a->lane, b->lane);
  const uint64_t lane = a->lane, sequence = a->lane_sequence;
  queue_.finish(list(std::move(a)));
  const ClosurePtr c = take_one();
  EXPECT_EQ(c->lane, lane);
  EXPECT_GT(c->lane_sequence, sequence);
  queue_.finish(list(std::move(b)));
}

class LossyQueue : public Queue, public ::testing::WithParamInterface<int> {
 protected:
  LossyQueue() : Queue(16, kPatience, kPatience, GetParam()) {}
};

TEST_P(LossyQueue, GivesUpAfterAsManyAttemptsAsItIsToldAndNotBefore) {
  const int max_attempts = GetParam();
  const RemoteValue value = put();
  for (int lost = 1; lost < max_attempts; ++lost) {
    queue_.put_back(take(), PutBack::kLost);
    EXPECT_EQ(queue_.counts().queued, 1u) << "lost " << lost << " times";
    EXPECT_EQ(queue_.counts().retried, static_cast<uint64_t>(lost));
  }
  queue_.put_back(take(), PutBack::kLost);
  EXPECT_EQ(queue_.counts().queued, 0u);
  EXPECT_EQ(queue_.counts().failed, 1u);
  EXPECT_ERROR(value.fetch(), Code::kAborted, str(max_attempts, " workers"));
  EXPECT_ERROR(join(), Code::kAborted, "given up");
  join();
}
INSTANTIATE_TEST_SUITE_P(Attempts, LossyQueue, ::testing::Values(1, 2, 8));

TEST_F(Queue, ReturnedClosuresMayComeBackAnyNumberOfTimes) {
  put();
  for (int i = 0; i < 10; ++i) queue_.put_back(take(), PutBack::kReturned);
  finish_last();
}

TEST_F(Queue, FinishingWhatWasNotTakenIsABugOfOurs) {
  EXPECT_ERROR(queue_.finish(list(closure())), Code::kInternal, "in_flight_");
}

TEST_F(Queue, StoppingCancelsWhatWaits) {
  const RemoteValue value = put();
  queue_.stop();
  const auto until = std::chrono::steady_clock::now() + milliseconds(20);
  EXPECT_TRUE(queue_.take(1, SIZE_MAX, until, never_, {}).empty());
  EXPECT_GE(std::chrono::steady_clock::now(), until) << "whoever asks again does not do so at once";
  EXPECT_ERROR(value.fetch(), Code::kCancelled, "the coordinator has ended");
}

TEST_F(Queue, WhatIsInFlightWhenAllIsAbandonedIsNotExecutedAgain) {
  const RemoteValue value = put();
  auto in_flight = take();
  queue_.abandon(Error(Code::kUnavailable, "nobody"));
  queue_.put_back(std::move(in_flight), PutBack::kLost);
  EXPECT_ERROR(join(), Code::kUnavailable, "nobody");
  EXPECT_ERROR(value.fetch(), Code::kCancelled, "nobody");
  join();
}

class TirelessQueue : public Queue {
 protected:
  TirelessQueue() : Queue(16, kPatience, kPatience, 1 << 30) {}

  // What a worker does, at random, until nobody schedules and nothing is queued.
  void work(int worker, const std::atomic<int>& scheduling) {
    RandomStream random(seed_ + 100 + static_cast<uint64_t>(worker));
    std::vector<ClosurePtr> held;
    while (scheduling > 0 || queue_.counts().queued > 0) {
      std::vector<ClosurePtr> taken = queue_.take(
          3, SIZE_MAX, std::chrono::steady_clock::now() + milliseconds(1), never_,
          {.worker = worker, .is_idle = random.below(2) == 0, .is_mixed = random.below(4) == 0});
      if (random.below(20) == 0)
        queue_.lose(worker, std::exchange(held, {}), std::exchange(taken, {}),
                    random.below(2) == 0);
      for (ClosurePtr& one : taken) land(std::move(one), held, random);
      if (random.below(5) == 0)
        queue_.settle(std::exchange(held, {}));
      else if (random.below(10) == 0)
        queue_.execute_again(std::exchange(held, {}));
      if (random.below(10) == 0) swallow([&] { queue_.done(); });
    }
    queue_.settle(held);
  }

  void land(ClosurePtr closure, std::vector<ClosurePtr>& held, RandomStream& random) {
    const uint64_t way = random.below(20);
    if (way == 0) return fail(std::move(closure));
    if (way == 1) return queue_.put_back(list(std::move(closure)), PutBack::kReturned);
    if (way == 2) return queue_.put_back(list(std::move(closure)), PutBack::kLost);
    if (way < 10) return queue_.finish(list(std::move(closure)));
    const bool first = !std::exchange(closure->executed, true);
    held.push_back(std::move(closure));
    queue_.hold(1, first ? 1 : 0);
  }

  // False where it threw one of the errors above.
  template <typename F>
  bool swallow(const F& f) {
    try {
      f();
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInternal) << error.what();
      return false;
    }
  }

  const uint64_t seed_ = trials(7, 1).seed;
};

// Ten threads do at random what schedulers and workers do.
TEST_F(TirelessQueue, EndsCleanWhateverTenThreadsDo) {
  std::atomic<int> scheduling = 4;
  std::atomic<uint64_t> scheduled = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      RandomStream random(seed_ + t);
      for (int i = 0; i < 50; ++i) {
        if (random.below(10) == 0) swallow([&] { join(); });
        auto made = std::make_unique<Closure>();
        made->function = std::make_shared<FunctionFamily>(1, "f", nullptr, nullptr, nullptr);
        made->result = std::make_shared<RemoteResult>();
        if (swallow([&] { queue_.put(std::move(made)); })) ++scheduled;
      }
      --scheduling;
    });
  for (int t = 0; t < 6; ++t) threads.emplace_back([&, t] { work(t, scheduling); });
  for (std::thread& thread : threads) thread.join();
  swallow([&] { join(); });
  EXPECT_TRUE(queue_.done());
  const ClosureQueue::Counts counts = queue_.counts();
  EXPECT_EQ(counts.in_flight, 0u);
  EXPECT_EQ(counts.executed + counts.failed + counts.cancelled, scheduled)
      << "each of them is one, once";
}

}  // namespace
}  // namespace cohort::testing
