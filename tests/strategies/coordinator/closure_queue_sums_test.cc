// Closures that wait in sums of their worker, and are executed again where it is lost.
#include <cstdint>
#include <utility>
#include <vector>

#include "strategies/coordinator/closure_queue.h"
#include "tests/strategies/coordinator/closure_queue_fixture.h"

namespace cohort::testing {
namespace {

class QueueOfSums : public Queue {};
using Numbers = std::vector<uint64_t>;

TEST_F(QueueOfSums, WhatIsHeldKeepsItsLaneAndIsExecutedAgainWhereItsEffectIsGone) {
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

TEST_F(QueueOfSums, AUnitGoesInItsOrderToTheFirstWorkerThatIsIdle) {
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

TEST_F(QueueOfSums, AUnitWhoseWorkerIsLostTooStaysInItsOrder) {
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

TEST_F(QueueOfSums, WhatWasOnlyHeldGoesToAnyWorker) {
  put();
  queue_.lose(0, hold(take()), {}, false);
  EXPECT_EQ(taken_by({.worker = 1, .is_idle = false}), Numbers{1});
  EXPECT_EQ(taken_[0]->unit, 0u);
  queue_.finish(std::exchange(taken_, {}));
}

TEST_F(QueueOfSums, AWorkerWhoseSumsCannotBeMadeAgainTakesAUnitWhenNothingElseWaits) {
  put_many(2);
  queue_.lose(0, {}, take(), false);
  const ClosureQueue::Taker mixed{.worker = 1, .is_idle = true, .is_mixed = true};
  EXPECT_EQ(taken_by(mixed), Numbers{2});
  EXPECT_EQ(taken_by(mixed), Numbers{1});
  queue_.finish(std::exchange(taken_, {}));
}

TEST_F(QueueOfSums, AnErrorCancelsNothingThatHasBeenExecuted) {
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

TEST_F(QueueOfSums, AUnitOfWhatHasBeenExecutedOutlivesTheErrorsOfOthers) {
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

TEST_F(QueueOfSums, WhatAWorkerIsStillToGetOfAUnitOutlivesAnError) {
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

TEST_F(QueueOfSums, WithNobodyThereItGivesUpWhatWasExecutedToo) {
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

TEST_F(QueueOfSums, CountsWhatItHasExecutedOnceMoreApart) {
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

}  // namespace
}  // namespace cohort::testing
