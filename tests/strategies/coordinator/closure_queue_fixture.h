#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/coordinator/closure_queue.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {

using coordinator::Closure;
using coordinator::ClosurePtr;
using coordinator::ClosureQueue;
using coordinator::FunctionFamily;
using coordinator::RemoteResult;
using PutBack = ClosureQueue::PutBack;

// A queue of closures, with threads of the test as those who schedule and as workers.
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
    made->function = std::make_shared<FunctionFamily>(1, "f", nullptr, nullptr, nullptr);
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

}  // namespace cohort::testing
