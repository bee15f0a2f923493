// Waits for room in the queue, and for join().
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strategies/coordinator/closure_queue.h"
#include "tests/strategies/coordinator/closure_queue_fixture.h"

namespace cohort::testing {
namespace {

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
  std::vector<ClosurePtr> closures;
  for (int i = 0; i < 4; ++i) closures.push_back(closure());
  std::atomic<int> told = 0;
  std::vector<std::thread> threads;
  for (ClosurePtr& one : closures)
    threads.emplace_back([&] {
      if (error_of([&] { queue_.put(std::move(one)); }).code() == Code::kInternal) ++told;
    });
  EXPECT_TRUE(eventually([&] { return queue_.counts().putting == 4; }));
  fail(std::move(bad));
  EXPECT_TRUE(eventually([&] { return queue_.counts().putting == 0; }))
      << "all have seen the error";
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

}  // namespace
}  // namespace cohort::testing
