// The queue and its rule for errors, with threads of the test as workers.
#include "strategies/coordinator/closure_queue.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "core/base/program.h"
#include "core/base/random.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

using coordinator::Closure;
using coordinator::ClosurePtr;
using coordinator::ClosureQueue;
using coordinator::FunctionFamily;
using coordinator::RemoteResult;
using PutBack = ClosureQueue::PutBack;

class Queue : public ::testing::Test {
 protected:
  explicit Queue(size_t capacity = 16, milliseconds stop_timeout = kPatience,
                 milliseconds put_timeout = kPatience, int max_attempts = 3)
      : queue_(ClosureQueue::Options{.capacity = capacity,
                                     .max_attempts = max_attempts,
                                     .put_timeout = put_timeout,
                                     .stop_timeout = stop_timeout,
                                     .cancel = [this] { cancelled_ = true; },
                                     .who = [this] { return who_(); }}) {}

  ClosurePtr closure() {
    auto made = std::make_unique<Closure>();
    made->function = std::make_shared<FunctionFamily>(1, "f", nullptr, nullptr);
    made->result = std::make_shared<RemoteResult>();
    made->number = ++last_number_;
    return made;
  }
  RemoteValue put() {
    ClosurePtr made = closure();
    RemoteValue value(made->result);
    queue_.put(std::move(made));
    return value;
  }
  void put_many(size_t count) {
    for (size_t i = 0; i < count; ++i) put();
  }
  std::vector<ClosurePtr> take(size_t most = 1) {
    return queue_.take(most, SIZE_MAX, std::chrono::steady_clock::now() + kPatience, never_, {});
  }
  std::vector<ClosurePtr> take_what_is_there(size_t most = 100,
                                             const ClosureQueue::Taker& taker = {}) {
    return queue_.take(most, SIZE_MAX, std::chrono::steady_clock::now(), never_, taker);
  }
  // The numbers of what a worker may take now, which is then in flight.
  std::vector<uint64_t> taken_by(const ClosureQueue::Taker& taker, size_t most = 100) {
    std::vector<uint64_t> numbers;
    for (ClosurePtr& closure : take_what_is_there(most, taker)) {
      numbers.push_back(closure->number);
      taken_.push_back(std::move(closure));
    }
    return numbers;
  }
  // So many are executed, and held by who executed them.
  std::vector<ClosurePtr> hold(std::vector<ClosurePtr> closures) {
    for (const ClosurePtr& closure : closures) {
      closure->executed = true;
      closure->result->set(std::vector<Tensor>{});
    }
    queue_.hold(closures.size(), closures.size());
    return closures;
  }
  ClosurePtr take_one() { return std::move(take().at(0)); }
  static std::vector<ClosurePtr> list(ClosurePtr closure) {
    std::vector<ClosurePtr> all;
    all.push_back(std::move(closure));
    return all;
  }
  void join() { queue_.join(kPatience); }
  // The next one, executed, which ends all that waits.
  void finish_last() {
    queue_.finish(take());
    join();
  }
  // The next one fails; the one after it is in flight meanwhile.
  ClosurePtr fail_beside_another() {
    ClosurePtr bad = take_one(), other = take_one();
    fail(std::move(bad));
    return other;
  }
  void fail(ClosurePtr closure) { queue_.fail(std::move(closure), Error(Code::kInternal, "bad")); }
  void expect_join_fails() { EXPECT_ERROR(join(), Code::kInternal, "bad"); }
  // Has `work`, which puts one more, begin on a thread of its own; returns when that waits in
  // put().
  std::thread begin_to_put(std::function<void()> work) {
    std::thread putting(std::move(work));
    EXPECT_TRUE(eventually([&] { return queue_.counts().putting == 1; }));
    return putting;
  }
  std::thread begin_to_put() {
    return begin_to_put([this] { put(); });
  }

  std::atomic<bool> cancelled_ = false, never_ = false;
  std::vector<ClosurePtr> taken_;
  std::function<std::string()> who_ = [] { return "worker:1: at it"; };
  uint64_t last_number_ = 0;
  ClosureQueue queue_;
};

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
  fail(std::move(bad));
  std::atomic<int> begun = 0, told = 0;
  std::atomic<uint64_t> left = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      ++begun;
      if (error_of([&] { join(); }).code() == Code::kInternal)
        ++told;
      else
        left += queue_.counts().queued;
    });
  EXPECT_TRUE(eventually([&] { return begun == 4 && cancelled_; }));
  queue_.finish(list(std::move(slow)));
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  queue_.finish(take());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(left, 0u);
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

// --- What waits in sums of its worker

using Numbers = std::vector<uint64_t>;

TEST_F(Queue, WhatIsHeldKeepsItsLaneAndIsExecutedAgainWhereItsEffectIsGone) {
  put_many(3);
  auto held = hold(take(2));
  const uint64_t lane = held[0]->lane, sequence = held[0]->lane_sequence;
  queue_.finish(take());
  EXPECT_TRUE(queue_.done()) << "it has been executed";
  queue_.execute_again(std::move(held));
  EXPECT_FALSE(queue_.done());
  auto again = take(2);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0]->lane, lane);
  EXPECT_EQ(again[0]->lane_sequence, sequence);
  queue_.hold(2, 0);
  queue_.settle(again);
  EXPECT_EQ(queue_.counts().executed, 3u);
  join();
}

TEST_F(Queue, AUnitGoesInItsOrderToTheFirstWorkerThatIsIdle) {
  put_many(5);
  auto held = hold(take(2)), in_flight = take(2);
  queue_.lose(0, std::move(held), std::move(in_flight), false);
  EXPECT_EQ(queue_.counts().queued, 5u);
  EXPECT_EQ(taken_by({.worker = 1, .is_idle = false}), Numbers{}) << "nothing else is given out";
  EXPECT_EQ(taken_by({.worker = 2, .is_idle = true}, 1), Numbers{1});
  EXPECT_EQ(taken_by({.worker = 1, .is_idle = true}), Numbers{5});
  EXPECT_EQ(taken_by({.worker = 2, .is_idle = false}), (Numbers{2, 3, 4}));
  for (const size_t i : {0u, 2u, 3u, 4u}) EXPECT_EQ(taken_[i]->unit, taken_[0]->unit);
  EXPECT_EQ(taken_[1]->unit, 0u);
  queue_.finish(std::exchange(taken_, {}));
  EXPECT_TRUE(queue_.done());
}

TEST_F(Queue, AUnitWhoseWorkerIsLostTooStaysInItsOrder) {
  put_many(4);
  queue_.lose(0, {}, take(4), false);
  EXPECT_EQ(taken_by({.worker = 1}, 3), (Numbers{1, 2, 3}));
  const uint64_t unit = taken_[0]->unit;
  auto settled = list(std::move(taken_[0])), held = list(std::move(taken_[1])),
       in_flight = list(std::move(taken_[2]));
  taken_.clear();
  queue_.settle(hold(std::move(settled)));
  queue_.lose(1, hold(std::move(held)), std::move(in_flight), false);
  EXPECT_EQ(taken_by({.worker = 2}), (Numbers{2, 3, 4})) << "also what it had not been given";
  EXPECT_NE(taken_[0]->unit, unit) << "sums begin anew";
  queue_.finish(std::exchange(taken_, {}));
  EXPECT_TRUE(queue_.done());
}

TEST_F(Queue, WhatWasOnlyHeldGoesToAnyWorker) {
  put();
  queue_.lose(0, hold(take()), {}, false);
  EXPECT_EQ(taken_by({.worker = 1, .is_idle = false}), Numbers{1});
  EXPECT_EQ(taken_[0]->unit, 0u);
  queue_.finish(std::exchange(taken_, {}));
}

TEST_F(Queue, AWorkerWhoseSumsCannotBeMadeAgainTakesAUnitWhenNothingElseWaits) {
  put_many(2);
  queue_.lose(0, {}, take(), false);
  const ClosureQueue::Taker mixed{.worker = 1, .is_idle = true, .is_mixed = true};
  EXPECT_EQ(taken_by(mixed), Numbers{2});
  EXPECT_EQ(taken_by(mixed), Numbers{1});
  queue_.finish(std::exchange(taken_, {}));
}

TEST_F(Queue, AnErrorCancelsNothingThatHasBeenExecuted) {
  put_many(3);
  const RemoteValue waiting = put();
  auto held = hold(take());
  ClosurePtr failing = take_one();
  queue_.lose(0, std::move(held), take(), false);
  fail(std::move(failing));
  expect_join_fails();
  EXPECT_ERROR(waiting.fetch(), Code::kCancelled, "schedule it again");
  EXPECT_EQ(queue_.counts().cancelled, 2u);
  EXPECT_EQ(taken_by({.worker = 1, .is_idle = false}), Numbers{1});
  queue_.finish(std::exchange(taken_, {}));
  join();
}

TEST_F(Queue, AUnitOfWhatHasBeenExecutedOutlivesTheErrorsOfOthers) {
  put_many(4);
  auto units = hold(take(3));
  ClosurePtr failing = take_one();
  std::vector<ClosurePtr> later;
  later.push_back(std::move(units.back()));
  units.pop_back();
  queue_.lose(0, std::move(units), {}, true);
  fail(std::move(failing));
  queue_.lose(1, std::move(later), {}, true);
  expect_join_fails();
  EXPECT_EQ(taken_by({.worker = 2, .is_idle = false}), Numbers{});
  EXPECT_EQ(taken_by({.worker = 2}, 1), Numbers{1});
  EXPECT_EQ(taken_by({.worker = 3}), Numbers{3});
  EXPECT_EQ(taken_by({.worker = 2, .is_idle = false}), Numbers{2});
  EXPECT_EQ(taken_[0]->unit, taken_[2]->unit);
  EXPECT_NE(taken_[0]->unit, 0u);
  EXPECT_NE(taken_[0]->unit, taken_[1]->unit);
  queue_.finish(std::exchange(taken_, {}));
  join();
}

TEST_F(Queue, WhatAWorkerIsStillToGetOfAUnitOutlivesAnError) {
  put_many(4);
  queue_.lose(0, hold(take(3)), {}, true);
  EXPECT_EQ(taken_by({.worker = 1}, 1), Numbers{1});
  const uint64_t unit = taken_[0]->unit;
  EXPECT_EQ(taken_by({.worker = 2}), Numbers{4});
  fail(std::move(taken_[1]));
  taken_.pop_back();
  queue_.finish(std::exchange(taken_, {}));
  expect_join_fails();
  EXPECT_EQ(taken_by({.worker = 2}), Numbers{}) << "it is the other one's";
  EXPECT_EQ(taken_by({.worker = 1}), (Numbers{2, 3}));
  EXPECT_EQ(taken_[0]->unit, unit);
  queue_.finish(std::exchange(taken_, {}));
  join();
}

TEST_F(Queue, WithNobodyThereItGivesUpWhatWasExecutedToo) {
  put_many(4);
  const Error nobody(Code::kUnavailable, "nobody");
  auto unit = hold(take(2));
  queue_.execute_again(hold(take()));
  queue_.lose(0, std::move(unit), {}, true);
  queue_.abandon(nobody);
  EXPECT_ERROR(join(), Code::kUnavailable, "nobody");
  EXPECT_EQ(queue_.counts().cancelled, 1u) << "of the others, the results are known";
  EXPECT_EQ(queue_.counts().queued, 0u);
  queue_.abandon(nobody);
  join();
  put();
  finish_last();
}

TEST_F(Queue, CountsWhatItHasExecutedOnceMoreApart) {
  put_many(3);
  queue_.execute_again(hold(take(3)));
  queue_.finish(take());
  auto held = take();
  queue_.hold(1, 0);
  queue_.settle(held);
  fail(take_one());
  EXPECT_EQ(queue_.counts().executed, 3u);
  EXPECT_EQ(queue_.counts().failed, 0u);
  EXPECT_EQ(queue_.counts().again, 3u);
  expect_join_fails();
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

class SmallQueue : public Queue {
 protected:
  SmallQueue() : Queue(2) {}
};

TEST_F(SmallQueue, PutWaitsWhileItIsFull) {
  put_many(2);
  std::thread putting = begin_to_put();
  EXPECT_EQ(queue_.counts().queued, 2u);
  queue_.finish(take());
  putting.join();
  EXPECT_EQ(queue_.counts().queued, 2u);
  EXPECT_EQ(queue_.counts().putting, 0u);
}

// Where 0 is how many may wait.
class EndlessQueue : public Queue {
 protected:
  EndlessQueue() : Queue(0, kPatience, milliseconds(0)) {}
};

TEST_F(EndlessQueue, PutNeverWaits) {
  constexpr size_t kPut = 1000;
  put_many(kPut);
  EXPECT_EQ(queue_.counts().queued, kPut);
  queue_.finish(take(kPut / 2));
  put();
  EXPECT_EQ(queue_.counts().queued, kPut / 2 + 1);
  queue_.finish(take(kPut));
  join();
}

TEST_F(SmallQueue, PutThatWaitsHearsOfAnError) {
  put_many(2);
  ClosurePtr bad = take_one();
  put();
  std::thread putting = begin_to_put([&] { EXPECT_ERROR(put(), Code::kInternal, "bad"); });
  fail(std::move(bad));
  putting.join();
  EXPECT_TRUE(queue_.done());
}

TEST_F(SmallQueue, PutThatIsNotToldOfAnErrorStillWaitsForRoom) {
  put_many(2);
  auto held = hold(take(2));
  put_many(2);
  ClosurePtr bad = take_one(), slow = take_one();
  queue_.execute_again(std::move(held));
  fail(std::move(bad));
  std::vector<ClosurePtr> closures;
  for (int i = 0; i < 4; ++i) closures.push_back(closure());
  std::atomic<int> begun = 0, told = 0;
  std::vector<std::thread> threads;
  for (ClosurePtr& one : closures)
    threads.emplace_back([&] {
      ++begun;
      if (error_of([&] { queue_.put(std::move(one)); }).code() == Code::kInternal) ++told;
    });
  EXPECT_TRUE(eventually([&] { return begun == 4 && cancelled_; }));
  queue_.finish(list(std::move(slow)));
  EXPECT_TRUE(eventually([&] { return told == 1 && queue_.counts().putting == 3; }));
  EXPECT_EQ(queue_.counts().queued, 2u);
  for (int i = 0; i < 5; ++i) queue_.finish(take());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
}

TEST_F(SmallQueue, PutWaitsForJoin) {
  put();
  ClosurePtr first = take_one();
  std::thread putting;
  // Asked by join(), whose wait is not over before it throws.
  who_ = [&] {
    putting = begin_to_put();
    EXPECT_EQ(queue_.counts().queued, 0u);
    return "worker:0: at it";
  };
  EXPECT_ERROR(queue_.join(milliseconds(1)), Code::kDeadlineExceeded, "1 in flight; worker:0");
  putting.join();
  EXPECT_EQ(queue_.counts().queued, 1u);
  queue_.finish(list(std::move(first)));
}

class HastyQueue : public Queue {
 protected:
  HastyQueue() : Queue(2, kPatience, milliseconds(20)) {}
};

TEST_F(HastyQueue, PutGivesUpAFullQueueAndTheQueueGoesOn) {
  put();
  ClosurePtr running = take_one();
  put_many(2);
  EXPECT_ERROR(put(), Code::kDeadlineExceeded, "the queue is full (2), and nothing has been");
  EXPECT_ERROR(put(), Code::kDeadlineExceeded,
               "2 closures are queued and 1 in flight; worker:1: at it");
  EXPECT_EQ(queue_.counts().queued, 2u);
  EXPECT_EQ(queue_.counts().putting, 0u);
  queue_.finish(list(std::move(running)));
  queue_.finish(take(2));
  put();
  queue_.finish(take());
  join();
  EXPECT_EQ(queue_.counts().executed, 4u);
}

TEST_F(HastyQueue, PutGivesUpWaitingForJoin) {
  put();
  ClosurePtr first = take_one();
  bool joining = false;
  // Asked by join() first, whose wait is not over before it throws, and then by put().
  who_ = [&]() -> std::string {
    if (!std::exchange(joining, true)) {
      EXPECT_ERROR(put(), Code::kDeadlineExceeded, "another thread waits in join(), and nothing");
      EXPECT_EQ(queue_.counts().queued, 0u);
    }
    return "worker:0: at it";
  };
  EXPECT_ERROR(queue_.join(milliseconds(1)), Code::kDeadlineExceeded, "after");
  EXPECT_TRUE(joining);
  queue_.finish(list(std::move(first)));
  put();
  finish_last();
}

class TirelessQueue : public Queue {
 protected:
  TirelessQueue() : Queue(16, kPatience, kPatience, 1 << 30) {}

  // What a worker does, at random, until nobody schedules and nothing is queued.
  void work(int worker, const std::atomic<int>& scheduling) {
    RandomStream random(kSeed + 100 + static_cast<uint64_t>(worker));
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

  static constexpr uint64_t kSeed = 7;
};

// Ten threads do at random what schedulers and workers do.
TEST_F(TirelessQueue, EndsCleanWhateverTenThreadsDo) {
  SCOPED_TRACE(str("seed ", kSeed));
  std::atomic<int> scheduling = 4;
  std::atomic<uint64_t> scheduled = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      RandomStream random(kSeed + t);
      for (int i = 0; i < 50; ++i) {
        if (random.below(10) == 0) swallow([&] { join(); });
        auto made = std::make_unique<Closure>();
        made->function = std::make_shared<FunctionFamily>(1, "f", nullptr, nullptr);
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
